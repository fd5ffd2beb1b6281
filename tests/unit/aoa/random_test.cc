// Random programs against their execution on plain arrays: forwards and backwards, whole tensors and random boxes,
// model keys and states that follow.
#include <algorithm>

#include "tests/unit/aoa/programs.h"
#include "tests/unit/aoa/random_program.h"

namespace kintsugi::aoa {
namespace {

std::string Describe(const RandomProgram& made) {
  std::string text = "the program:\n";
  for (const std::string& statement : made.program.statements) text += "  " + statement + "\n";
  return text;
}

struct Executed {
  PlainArray array;
  std::string problem;
};

PlainArray RunSteps(PlainArray piece, const std::vector<PieceStep>& steps, bool casts_change) {
  for (const PieceStep& step : steps) {
    if (step.kind == PieceStepKind::kCast) {
      if (casts_change) piece = PlainCast(piece, std::string(DTypeName(step.dtype)));
    } else if (step.kind == PieceStepKind::kPermute) {
      piece = PlainPermute(piece, step.list);
    } else {
      if (CellCount(step.list) != CellCount(piece.shape)) return {};
      piece = PlainReshape(piece, step.list);
    }
  }
  return piece;
}

// Executes an answer: reads source boxes, runs the steps, writes target boxes, each cell once.
Executed Execute(const std::vector<ShardSource>& pieces, const Target& target, const RandomProgram& made,
                 bool of_states) {
  const StateSpelling spelling = of_states ? made.states : StateSpelling{"", ""};
  Executed executed;
  for (const Interval& interval : target.box) executed.array.shape.push_back(interval.length());
  executed.array.cells.assign(static_cast<size_t>(CellCount(executed.array.shape)), 0);
  std::vector<int> written(executed.array.cells.size(), 0);
  for (const ShardSource& piece : pieces) {
    const auto source = std::find_if(made.sources.begin(), made.sources.end(),
                                     [&](const auto& known) { return spelling.Of(known.first) == piece.source_key; });
    if (source == made.sources.end()) return {{}, "no source " + piece.source_key};
    PlainShape begin, end;
    for (const Interval& interval : piece.source_box) {
      begin.push_back(interval.begin);
      end.push_back(interval.end);
    }
    const PlainArray& all = of_states ? source->second.state : source->second.values;
    const PlainArray read = RunSteps(PlainCut(all, begin, end), piece.steps, !made.program.options.reverse);
    PlainShape shape;
    for (const Interval& interval : piece.target_box) shape.push_back(interval.length());
    if (read.shape != shape) return {{}, "a piece of another shape"};
    for (int64_t place = 0; place < CellCount(shape); ++place) {
      PlainShape index = IndexOf(shape, place);
      for (size_t axis = 0; axis < index.size(); ++axis)
        index[axis] += piece.target_box[axis].begin - target.box[axis].begin;
      const auto at = static_cast<size_t>(PlaceOf(executed.array.shape, index));
      executed.array.cells[at] = read.cells[static_cast<size_t>(place)];
      ++written[at];
    }
  }
  for (const int times : written)
    if (times != 1) return {{}, "a cell is written " + std::to_string(times) + " times"};
  return executed;
}

struct Counts {
  int questions = 0, reshaped = 0;
};

// Asks for one box and compares.
void Compare(const Engine& engine, const RandomProgram& made, const std::string& key, const PlainTensor& expected,
             const IndexBox& box, bool of_states, Counts* counts) {
  const Target target{of_states ? made.states.Of(key) : key, box, std::nullopt};
  const auto pieces = engine.FindShardSources(target);
  ++counts->questions;
  counts->reshaped += expected.is_reshaped;
  ASSERT_TRUE(pieces.ok()) << pieces.status().ToString() << "\n" << Describe(made);
  const Executed executed = Execute(*pieces, target, made, of_states);
  PlainShape begin, end;
  for (const Interval& interval : box) {
    begin.push_back(interval.begin);
    end.push_back(interval.end);
  }
  const PlainArray wanted = PlainCut(of_states ? expected.state : expected.values, begin, end);
  ASSERT_TRUE(executed.problem.empty() && executed.array == wanted)
      << target.key << DescribeBox(box) << ": " << executed.problem << " " << Ask(engine, target) << "\n"
      << Describe(made);
}

void Check(const RandomProgram& made, Random& random, Counts* counts) {
  const auto engine = Engine::Build(made.program);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString() << "\n" << Describe(made);
  const auto named = std::count_if(engine->outputs().begin(), engine->outputs().end(),
                                   [](const auto& output) { return !output.second.follows; });
  ASSERT_EQ(static_cast<size_t>(named), made.expected.size() + made.added.size() + made.named_states) << Describe(made);
  for (const std::string& key : made.added) ASSERT_TRUE(engine->outputs().at(key).is_added) << Describe(made);
  for (const auto& [key, expected] : made.expected) {
    ASSERT_TRUE(engine->outputs().contains(key)) << key << "\n" << Describe(made);
    ASSERT_TRUE(made.has_destination || !made.describes_states || engine->outputs().contains(made.states.Of(key)))
        << key << "\n"
        << Describe(made);
    const Output& output = engine->outputs().at(key);
    ASSERT_EQ(output.shape, expected.values.shape) << key << "\n" << Describe(made);
    ASSERT_EQ(DTypeName(output.dtype), expected.dtype) << key << "\n" << Describe(made);
    for (int i = 0; i < 3; ++i) {
      IndexBox box = WholeBox(output.shape);
      for (Interval& interval : box) {
        if (i == 0) break;  // the whole
        const auto a = static_cast<int64_t>(random.Below(static_cast<uint64_t>(interval.end) + 1));
        const auto b = static_cast<int64_t>(random.Below(static_cast<uint64_t>(interval.end) + 1));
        interval = {std::min(a, b), std::max(a, b)};
      }
      for (const bool of_states : {false, true}) {
        Compare(*engine, made, key, expected, box, of_states, counts);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(AoaRandom, ForwardProgramsDoWhatTheirStatementsSay) {
  Counts counts;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Check(MakeForward(random), random, &counts);
    if (HasFatalFailure()) return;
  }
  // The comparison must have had something to compare.
  EXPECT_GT(counts.questions, 20000);
  EXPECT_GT(counts.reshaped, 2000);
}

TEST(AoaRandom, ReversedProgramsBringEveryElementBack) {
  Counts counts;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed * 7919);
    Check(MakeReversed(random), random, &counts);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(counts.questions, 20000);
}

TEST(AoaRandom, WeightsAndTheirStatesInPlaceAreEachChangedOnce) {
  Counts counts;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed * 104729);
    const RandomProgram made = seed % 2 == 0 ? MakeForward(random, true) : MakeReversed(random, true);
    Check(made, random, &counts);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(counts.questions, 5000);
}

}  // namespace
}  // namespace kintsugi::aoa
