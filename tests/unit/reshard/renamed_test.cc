// Destinations of any kind: permuted, cut into parts, cast, wanted several times; and objects.
#include <algorithm>
#include <numeric>

#include "kernels/host_cast.h"
#include "tests/support/memory_store.h"
#include "tests/unit/layout/random_layout.h"
#include "tests/unit/plan/worlds.h"
#include "tests/unit/reshard/rank_memory.h"

namespace kintsugi::reshard {
namespace {

using layout::Box;
using layout::Point;

constexpr int32_t kRanks = 4;

ElementType TypeOf(DType dtype) { return static_cast<ElementType>(dtype); }

// A memory, and what it must hold in the end, byte by byte.
struct Expected {
  GuardedMemory memory;
  std::vector<uint8_t> bytes;
};

class RenamedWorld {
 public:
  explicit RenamedWorld(uint64_t seed) : random_(seed) {}

  void Run() {
    const DType stored = random_.Chance(0.5) ? DType::kFloat32 : DType::kFloat64;
    auto shards =
        layout::RandomLayout("w", {.axes_max = 5, .elements_max = 150, .ranks = kRanks, .change = 0}, random_);
    for (auto& shard : shards) shard.tensor.dtype = stored;
    const Metadata source = layout::BuildAll(shards);
    const Box whole = source.keys[0].Whole();
    plan::Side asked;
    for (const Box& box : layout::RandomTiling(whole, 1 + static_cast<int>(random_.Below(5)), random_)) {
      ShardedTensor tensor = layout::TensorAt("w", whole, box);
      tensor.dtype = stored;
      asked.Add(static_cast<int32_t>(random_.Below(kRanks)), tensor);
    }
    const Metadata target = asked.Build();
    const auto plan = MakePlan(source, target);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    WorldMemory held(source), unused(target);
    held.Fill(source);
    std::vector<Bindings> bindings = BindAll(source, held, target, unused, kRanks);
    for (Bindings& of_rank : bindings)
      for (auto& [number, binding] : of_rank.targets) {
        binding.copies.clear();
        for (uint64_t copies = 1 + random_.Below(3); copies > 0; --copies)
          binding.copies.push_back(MakeCopy(whole, target.Piece(target.keys[0], number).box(), stored));
      }
    const int64_t window = random_.Chance(0.5) ? 256 : 4 << 20;
    const auto results = ExecuteInProcess(*plan, source, target, bindings, {.window_bytes = window});
    ASSERT_TRUE(results.ok()) << results.status().ToString();
    for (const auto& one : expected_) {
      ASSERT_TRUE(one->memory.guards_hold());
      ASSERT_EQ(std::memcmp(one->memory.memory().data, one->bytes.data(), one->bytes.size()), 0);
    }
  }

 private:
  std::vector<DType> RandomCasts(DType stored) {
    const DType types[] = {DType::kFloat64, DType::kBFloat16, DType::kFloat8E4M3,
                           DType::kInt32,   DType::kFloat16,  stored};
    std::vector<DType> casts;
    for (uint64_t steps = random_.Below(4); steps > 0; --steps) casts.push_back(types[random_.Below(std::size(types))]);
    return casts;
  }

  // The piece in parts, each permuted, in a memory of its own, with gaps.
  DestinationCopy MakeCopy(const Box& whole, const Box& piece, DType stored) {
    DestinationCopy copy;
    for (const Box& box : layout::RandomTiling(piece, 1 + static_cast<int>(random_.Below(3)), random_)) {
      Destination part;
      part.casts = RandomCasts(stored);
      part.dtype = part.casts.empty() ? stored : part.casts.back();
      part.map.box = box;
      std::vector<int> order(static_cast<size_t>(box.axes));
      std::iota(order.begin(), order.end(), 0);
      for (size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[random_.Below(k)]);
      const auto size = static_cast<int64_t>(DTypeSize(part.dtype));
      int64_t step = size * (random_.Chance(0.3) ? 2 : 1);
      for (size_t i = order.size(); i-- > 0;) {
        part.map.stride[order[i]] = step;
        step = step * box.length(order[i]) + (random_.Chance(0.3) ? size : 0);
      }
      part.map.base = static_cast<int64_t>(random_.Below(3)) * size;
      const auto bytes = static_cast<size_t>(part.map.base + std::max<int64_t>(step, 0) + size);
      expected_.push_back(
          std::make_unique<Expected>(Expected{GuardedMemory(bytes), std::vector<uint8_t>(bytes, kUnwritten)}));
      part.memory = expected_.back()->memory.memory();
      Expect(whole, part, stored, &expected_.back()->bytes);
      copy.push_back(part);
    }
    return copy;
  }

  static void Expect(const Box& whole, const Destination& part, DType stored, std::vector<uint8_t>* bytes) {
    const Box& box = part.map.box;
    for (int64_t e = 0; e < *Volume(box); ++e) {
      const Point at = Unravel(box, e);
      uint8_t value[16], next[16];
      FillElement(0, Ravel(whole, at), DTypeSize(stored), value);
      DType type = stored;
      for (const DType cast : part.casts) {
        CastRegion(next, TypeOf(cast), value, TypeOf(type), {});
        std::memcpy(value, next, sizeof(next));
        type = cast;
      }
      int64_t offset = part.map.base;
      for (int axis = 0; axis < box.axes; ++axis) offset += part.map.stride[axis] * (at[axis] - box.lo[axis]);
      std::memcpy(bytes->data() + offset, value, DTypeSize(part.dtype));
    }
  }

  Random random_;
  std::vector<std::unique_ptr<Expected>> expected_;
};

TEST(Destinations, MayBePermutedCutCastAndSeveral) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RenamedWorld(seed).Run();
    if (HasFatalFailure()) return;
  }
}

// Large enough that chains of casts are cut, and that messages are.
TEST(Destinations, CastThroughEveryTypeOfAChain) {
  const Shape shape = {96, 70};
  const Metadata source = plan::Grid("w", shape, {1, 2}), target = plan::Grid("w", shape, {3, 1});
  const auto plan = MakePlan(source, target);
  ASSERT_TRUE(plan.ok());
  std::vector<float> held[2];
  std::vector<double> got[3];
  std::vector<Bindings> bindings(3);
  const auto value = [](int64_t row, int64_t column) {
    return static_cast<float>(row) * 1.37f - static_cast<float>(column) / 3;
  };
  for (int r = 0; r < 2; ++r) {
    for (int64_t row = 0; row < 96; ++row)
      for (int64_t column = r * 35; column < (r + 1) * 35; ++column) held[r].push_back(value(row, column));
    bindings[static_cast<size_t>(r)].sources[static_cast<uint32_t>(r)] = {.data = held[r].data(),
                                                                          .size_bytes = held[r].size() * 4};
  }
  for (int r = 0; r < 3; ++r) {
    got[r].assign(32 * 70, 0);
    const PieceView piece = target.Piece(target.keys[0], static_cast<uint32_t>(r));
    Destination transposed{
        {.data = got[r].data(), .size_bytes = got[r].size() * 8}, DType::kFloat64, {piece.box(), 0, {8, 32 * 8}}, {}};
    transposed.casts = {DType::kFloat16, DType::kFloat8E5M2, DType::kFloat64};
    bindings[static_cast<size_t>(r)].targets[static_cast<uint32_t>(r)].copies = {{transposed}};
  }
  const auto results = ExecuteInProcess(*plan, source, target, bindings);
  ASSERT_TRUE(results.ok()) << results.status().ToString();
  for (int r = 0; r < 3; ++r)
    for (int64_t row = 0; row < 32; ++row)
      for (int64_t column = 0; column < 70; ++column) {
        const float stored = value(32 * r + row, column);
        uint16_t half = 0;
        uint8_t small = 0;
        double expected = 0;
        CastRegion(&half, ElementType::kFloat16, &stored, ElementType::kFloat32, {});
        CastRegion(&small, ElementType::kFloat8E5M2, &half, ElementType::kFloat16, {});
        CastRegion(&expected, ElementType::kFloat64, &small, ElementType::kFloat8E5M2, {});
        ASSERT_EQ(got[r][static_cast<size_t>(column * 32 + row)], expected) << r << " " << row << " " << column;
      }
}

TEST(BindShards, FindsPiecesByWhatARankDescribes) {
  std::vector<float> a(6, 1.0f), b(4, 2.0f), got(10, 0);
  ShardedTensor first = plan::Piece("w", {10}, {0}, {10}, FlatRange{0, 6}),
                second = plan::Piece("w", {10}, {0}, {10}, FlatRange{6, 10});
  first.memory = {.data = a.data(), .size_bytes = 24};
  second.memory = {.data = b.data(), .size_bytes = 16};
  ShardedTensor whole = plan::Piece("w", {10}, {0}, {10});
  whole.memory = {.data = got.data(), .size_bytes = 40};
  plan::Side from, to;
  const Metadata source = from.Add(0, first).Add(1, second).Build(), target = to.Add(1, whole).Build();
  std::vector<Bindings> bindings(2);
  ASSERT_TRUE(BindSource(source, 0, first, &bindings[0]).ok());
  ASSERT_TRUE(BindSource(source, 1, second, &bindings[1]).ok());
  ASSERT_TRUE(BindTarget(source, target, 1, whole, &bindings[1]).ok());
  EXPECT_EQ(BindSource(source, 1, first, &bindings[1]).code(), StatusCode::kNotFound);
  EXPECT_EQ(BindTarget(source, target, 0, whole, &bindings[1]).code(), StatusCode::kNotFound);
  second.memory.size_bytes = 15;
  EXPECT_EQ(BindSource(source, 1, second, &bindings[1]).code(), StatusCode::kInvalidArgument);
  const auto plan = MakePlan(source, target);
  ASSERT_TRUE(ExecuteInProcess(*plan, source, target, bindings).ok());
  EXPECT_EQ(got, (std::vector<float>{1, 1, 1, 1, 1, 1, 2, 2, 2, 2}));
}

TEST(Objects, TravelWithTheirLengthsBesideTensors) {
  ShardedObject object;
  object.key = "rng";
  object.grid_shape = {3};
  plan::Side from, to;
  for (int32_t i = 0; i < 3; ++i) {
    object.grid_offset = {i};
    from.Add(i, object);
    to.Add(2 - i, object).Add(3, object);
  }
  const Metadata source = from.Build(), target = to.Build();
  const auto plan = MakePlan(source, target);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const std::vector<std::vector<uint8_t>> bytes = {std::vector<uint8_t>(300000, 7), {}, {1, 2, 3}};
  std::map<std::pair<int32_t, uint32_t>, std::vector<uint8_t>> got;
  std::vector<Bindings> bindings(4);
  for (uint32_t i = 0; i < 3; ++i) {
    bindings[i].sources[i] = {.data = const_cast<uint8_t*>(bytes[i].data()), .size_bytes = bytes[i].size()};
    for (const int32_t rank : {2 - static_cast<int32_t>(i), 3}) {
      got[{rank, i}] = {9};
      bindings[static_cast<size_t>(rank)].targets[i].object = &got[{rank, i}];
    }
  }
  const auto results = ExecuteInProcess(*plan, source, target, bindings);
  ASSERT_TRUE(results.ok()) << results.status().ToString();
  for (const auto& [place, value] : got) EXPECT_EQ(value, bytes[place.second]) << place.first;
  ExecuteOptions small;
  small.object_bytes_max = 299999;
  const Status refused = ExecuteInProcess(*plan, source, target, bindings, small).status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused.ToString();
  EXPECT_NE(refused.message().find("'rng'"), std::string::npos) << refused.ToString();
}

}  // namespace
}  // namespace kintsugi::reshard
