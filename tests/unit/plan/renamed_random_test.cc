// Random AOA programs between random layouts, carried out cell by cell against what the program means.
#include <gtest/gtest.h>

#include <map>

#include "replica/plan/aoa_tensors.h"
#include "replica/plan/renamed_plan.h"
#include "runtime/base/check.h"
#include "tests/unit/aoa/random_program.h"
#include "tests/unit/layout/random_layout.h"
#include "tests/unit/plan/worlds.h"

namespace kintsugi::plan {
namespace {

using aoa::PlainArray;
using aoa::PlainShape;
using aoa::RandomProgram;
using layout::Box;
using layout::Metadata;

constexpr int32_t kRanks = 5;
constexpr const char* kState = ".moment1_0";

std::string Describe(const RandomProgram& made) {
  std::string text = "the program:\n";
  for (const std::string& statement : made.program.statements) text += "  " + statement + "\n";
  return text;
}

// A tensor tiled over the ranks, some boxes flattened, some copied.
void AddLaidOut(Side* side, const std::string& key, const PlainShape& shape, DType dtype, bool is_whole,
                Random& random) {
  const Box whole = layout::WholeBox(shape);
  for (const Box& box : RandomTiling(whole, is_whole ? 1 : 4, random)) {
    ShardedTensor tensor = layout::TensorAt(key, whole, box);
    tensor.dtype = dtype;
    const int64_t volume = *Volume(box);
    if (!is_whole && volume > 1 && random.Chance(0.3)) {
      const auto middle = static_cast<int64_t>(random.Below(static_cast<uint64_t>(volume)));
      for (const FlatRange range : {FlatRange{0, middle}, {middle, volume}}) {
        tensor.flattened_range = range;
        side->Add(static_cast<int32_t>(random.Below(kRanks)), tensor);
      }
      continue;
    }
    const auto rank = static_cast<int32_t>(random.Below(kRanks));
    side->Add(rank, tensor);
    if (!random.Chance(0.3)) continue;
    tensor.replica_id = {1};
    side->Add((rank + 1) % kRanks, tensor);
  }
}

struct World {
  Metadata source, target;
};

World LayOut(const RandomProgram& made, const aoa::Engine& engine, Random& random) {
  Side source, target;
  for (const auto& [key, tensor] : made.sources) {
    AddLaidOut(&source, key, tensor.values.shape, *DTypeFromName(tensor.dtype), false, random);
    AddLaidOut(&source, key + kState, tensor.state.shape, DType::kFloat32, false, random);
  }
  for (const auto& [key, tensor] : made.expected) {
    const bool is_whole = tensor.is_reshaped && random.Chance(0.5);
    AddLaidOut(&target, key, tensor.values.shape, engine.outputs().at(key).dtype, is_whole, random);
    AddLaidOut(&target, key + kState, tensor.state.shape, DType::kFloat32, is_whole, random);
  }
  return {source.Build(), target.Build()};
}

PlainArray Cut(const PlainArray& from, const Box& box) {
  return aoa::PlainCut(from, PlainShape(box.lo.begin(), box.lo.begin() + box.axes),
                       PlainShape(box.hi.begin(), box.hi.begin() + box.axes));
}

// The cells of the source box after the steps. Where they reshape, the order within the box is left open.
PlainArray RunSteps(PlainArray piece, const std::vector<aoa::PieceStep>& steps, bool casts_change, bool* is_ordered) {
  for (const aoa::PieceStep& step : steps) {
    if (step.kind == aoa::PieceStepKind::kCast) {
      if (casts_change) piece = aoa::PlainCast(piece, std::string(DTypeName(step.dtype)));
    } else if (step.kind == aoa::PieceStepKind::kPermute && *is_ordered) {
      piece = aoa::PlainPermute(piece, step.list);
    } else {
      *is_ordered = false;
    }
  }
  return piece;
}

const PlainArray& ArrayOf(const std::map<std::string, aoa::PlainTensor>& tensors, const std::string& key) {
  const bool is_state = key.ends_with(kState);
  const auto& tensor = tensors.at(is_state ? key.substr(0, key.size() - std::string(kState).size()) : key);
  return is_state ? tensor.state : tensor.values;
}

struct Counts {
  int plans = 0, refused = 0, moves = 0, reshaped = 0;
};

const layout::KeyMeta& KeyOf(const Metadata& metadata, uint32_t piece) {
  for (const layout::KeyMeta& key : metadata.keys)
    if (piece >= key.first_piece && piece - key.first_piece < key.piece_count) return key;
  KINTSUGI_CHECK(false, "no such piece");
  return metadata.keys[0];
}

void CarryOut(const RandomProgram& made, const World& world, const std::vector<RenamedMove>& moves, Counts* counts) {
  std::map<std::tuple<uint32_t, int32_t, int64_t>, int> written;
  for (const RenamedMove& move : moves) {
    ++counts->moves;
    const layout::KeyMeta &held = world.source.keys[move.source_key], &wanted = KeyOf(world.target, move.target_piece);
    bool is_ordered = true;
    PlainArray from = RunSteps(Cut(ArrayOf(made.sources, held.name), move.source_box), *move.steps,
                               !made.program.options.reverse, &is_ordered);
    PlainArray to = Cut(ArrayOf(made.expected, wanted.name), move.target_box);
    counts->reshaped += !is_ordered;
    if (!is_ordered) {
      std::sort(from.cells.begin(), from.cells.end());
      std::sort(to.cells.begin(), to.cells.end());
      from.shape = to.shape;
    }
    ASSERT_EQ(from, to) << held.name << " " << Describe(move.source_box) << " -> " << wanted.name << " "
                        << Describe(move.target_box) << "\n"
                        << Describe(made);
    ASSERT_EQ(move.bytes, *Volume(move.source_box) * static_cast<int64_t>(DTypeSize(held.dtype)));
    for (int64_t i = 0; i < *Volume(move.target_box); ++i)
      ++written[{move.target_piece, move.to, Ravel(wanted.Whole(), Unravel(move.target_box, i))}];
  }
  uint64_t elements = 0;
  for (const layout::KeyMeta& key : world.target.keys)
    for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i) {
      const layout::PieceView piece = world.target.Piece(key, i);
      const Box box = piece.box();
      for (int64_t number = 0; number < *Volume(box); ++number) {
        if (piece.is_flat() && (number < piece.flat.start || number >= piece.flat.stop)) continue;
        for (const layout::Holder& holder : piece.holders) {
          ++elements;
          ASSERT_EQ((written[{i, holder.rank, Ravel(key.Whole(), Unravel(box, number))}]), 1) << Describe(made);
        }
      }
    }
  ASSERT_EQ(written.size(), elements) << Describe(made);
}

// One rank's plan has the moves of the whole plan that concern it.
void CompareParts(const World& world, const aoa::Engine& engine, const RenamedPlan& whole, int32_t rank) {
  const auto part = MakeRenamedPlan(world.source, engine, world.target, {.rank = rank});
  ASSERT_TRUE(part.ok()) << part.error().message;
  const auto error = CheckRenamed(*part, world.source, world.target);
  ASSERT_FALSE(error) << error->message;
  const auto all = ListMoves(whole, world.source, world.target), own = ListMoves(*part, world.source, world.target);
  const auto of_rank = [&](const std::vector<RenamedMove>& moves) {
    std::vector<std::tuple<uint32_t, int32_t, int32_t, Box, Box>> list;
    for (const RenamedMove& move : moves)
      if (move.from == rank || move.to == rank)
        list.emplace_back(move.target_piece, move.from, move.to, move.source_box, move.target_box);
    return list;
  };
  ASSERT_EQ(own->size(), of_rank(*own).size());
  ASSERT_TRUE(of_rank(*own) == of_rank(*all));
}

void Try(const RandomProgram& made, Random& random, Counts* counts) {
  const auto engine = aoa::Engine::Build(made.program);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString() << "\n" << Describe(made);
  const World world = LayOut(made, *engine, random);
  const auto plan = MakeRenamedPlan(world.source, *engine, world.target);
  if (!plan.ok()) {
    // A box across reshaped rows.
    ASSERT_NE(plan.error().message.find("cannot be taken"), std::string::npos)
        << plan.error().message << Describe(made);
    ++counts->refused;
    return;
  }
  ++counts->plans;
  const auto error = CheckRenamed(*plan, world.source, world.target);
  ASSERT_FALSE(error) << error->message << "\n" << Describe(made);
  const auto moves = ListMoves(*plan, world.source, world.target);
  ASSERT_TRUE(moves.ok()) << moves.error().message;
  CarryOut(made, world, *moves, counts);
  if (!testing::Test::HasFatalFailure())
    CompareParts(world, *engine, *plan, static_cast<int32_t>(random.Below(kRanks)));
}

TEST(RenamedPlanRandom, WritesWhatTheProgramMeans) {
  Counts counts;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const RandomProgram made = random.Chance(0.6) ? aoa::MakeForward(random) : aoa::MakeReversed(random);
    Try(made, random, &counts);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(counts.plans, 800);
  EXPECT_GT(counts.moves, 20000);
  EXPECT_GT(counts.reshaped, 100);
  std::printf("%d plans, %d refused, %d moves, %d of them reshaped\n", counts.plans, counts.refused, counts.moves,
              counts.reshaped);
}

// Parts of a box through random steps: pairs tile both sides and say where each element goes.
TEST(StepMapRandom, PairsAreWhereTheElementsGo) {
  Random random(7);
  int cut = 0, refused = 0;
  for (int run = 0; run < 8000; ++run) {
    const auto below = [&](int64_t bound) { return static_cast<int64_t>(random.Below(static_cast<uint64_t>(bound))); };
    std::vector<aoa::PieceStep> steps;
    PlainArray now;
    now.shape = {1 + below(6), 1 + below(6)};
    const PlainShape from = now.shape;
    now.cells.resize(static_cast<size_t>(aoa::CellCount(from)));
    for (size_t i = 0; i < now.cells.size(); ++i) now.cells[i] = i;
    for (int64_t count = below(5); count > 0; --count) {
      const auto axes = static_cast<int64_t>(now.shape.size());
      if (random.Chance(0.4)) {
        PlainShape list(now.shape.size());
        for (size_t k = 0; k < list.size(); ++k) list[k] = static_cast<int64_t>(k);
        for (size_t k = list.size(); k-- > 1;) std::swap(list[k], list[random.Below(k + 1)]);
        steps.push_back({aoa::PieceStepKind::kPermute, DType::kFloat32, list});
        now = aoa::PlainPermute(now, list);
      } else if (axes == 2) {
        int64_t block = 1 + below(now.shape[0]), rest = 1 + below(now.shape[1]);
        while (now.shape[0] % block) --block;
        while (now.shape[1] % rest) --rest;
        const PlainShape shape = {now.shape[0] / block, block, now.shape[1] / rest, rest};
        steps.push_back({aoa::PieceStepKind::kReshape, DType::kFloat32, shape});
        now = aoa::PlainReshape(now, shape);
      } else {
        int64_t columns = 1;
        for (size_t axis = 2; axis < now.shape.size(); ++axis) columns *= now.shape[axis];
        const PlainShape shape = {now.shape[0] * now.shape[1], columns};
        steps.push_back({aoa::PieceStepKind::kFlatten, DType::kFloat32, shape});
        now = aoa::PlainReshape(now, shape);
      }
    }
    const PlainShape source_at(from.size(), 3), target_at(now.shape.size(), 9);
    const Box source = layout::BoxAt(source_at, from), target = layout::BoxAt(target_at, now.shape);
    const auto map = StepMap::Make(source, target, steps);
    if (!map.ok()) {  // a digit would be cut: [4, 6] to [3, 8]
      ASSERT_NE(map.error().message.find("does not fit"), std::string::npos) << map.error().message;
      ++refused;
      continue;
    }
    Box part = source;
    for (int axis = 0; axis < part.axes; ++axis) {
      part.lo[axis] += below(part.length(axis));
      part.hi[axis] -= below(part.length(axis));
    }
    std::vector<BoxPair> pairs;
    ASSERT_FALSE(map->Map(part, &pairs));
    cut += pairs.size() > 1;
    std::map<uint64_t, int> seen;
    for (const BoxPair& pair : pairs) {
      ASSERT_EQ(*Volume(pair.source), *Volume(pair.target));
      std::vector<uint64_t> held, made;
      for (int64_t i = 0; i < *Volume(pair.source); ++i) {
        const layout::Point at = Unravel(pair.source, i), to = Unravel(pair.target, i);
        ASSERT_TRUE(Contains(part, at) && Contains(target, to));
        held.push_back(static_cast<uint64_t>(Ravel(source, at)));
        made.push_back(now.cells[static_cast<size_t>(Ravel(target, to))]);
        ++seen[held.back()];
      }
      std::sort(made.begin(), made.end());
      std::sort(held.begin(), held.end());
      ASSERT_EQ(held, made);
    }
    ASSERT_EQ(static_cast<int64_t>(seen.size()), *Volume(part));
    for (const auto& [cell, times] : seen) ASSERT_EQ(times, 1);
  }
  EXPECT_GT(cut, 400);
  EXPECT_LT(refused, 1000);
}

}  // namespace
}  // namespace kintsugi::plan
