// Plans through an AOA program: worked examples, refusals, and proofs that are refused when they are wrong.
#include <gmock/gmock.h>

#include "replica/plan/aoa_tensors.h"
#include "replica/plan/renamed_plan.h"
#include "runtime/base/check.h"
#include "tests/unit/plan/worlds.h"

namespace kintsugi::plan {
namespace {

using layout::Box;
using layout::BoxAt;
using layout::ErrorCode;
using layout::Metadata;

ShardedTensor Typed(ShardedTensor tensor, DType dtype) {
  tensor.dtype = dtype;
  return tensor;
}

aoa::Engine EngineOf(std::vector<std::string> statements, const Metadata& source, const Metadata& target) {
  auto engine = aoa::Engine::Build({std::move(statements), TensorsOf(source), TensorsOf(target), {}});
  KINTSUGI_CHECK(engine.ok(), engine.status().ToString());
  return std::move(*engine);
}

struct Planned {
  Metadata source, target;
  RenamedPlan plan;
  std::vector<RenamedMove> moves;
};

Planned Make(const std::vector<std::string>& statements, Side source, Side target, const PlanOptions& options = {}) {
  Planned made{source.Build(), target.Build(), {}, {}};
  auto plan = MakeRenamedPlan(made.source, EngineOf(statements, made.source, made.target), made.target, options);
  KINTSUGI_CHECK(plan.ok(), plan.error().message);
  made.plan = std::move(plan).value();
  const auto error = CheckRenamed(made.plan, made.source, made.target);
  KINTSUGI_CHECK(!error, error->message);
  auto moves = ListMoves(made.plan, made.source, made.target);
  KINTSUGI_CHECK(moves.ok(), moves.error().message);
  made.moves = std::move(moves).value();
  return made;
}

// Two halves of a merged, cast and transposed tensor, as in the worked example of the language.
TEST(RenamedPlan, CarriesCastsAndTransposesWithTheMoves) {
  Side source, target;
  source.Add(0, Piece("s0", {2, 2}, {0, 0}, {2, 2})).Add(1, Piece("s1", {2, 2}, {0, 0}, {2, 2}));
  for (int32_t rank : {0, 1})
    target.Add(rank, Typed(Piece("d" + std::to_string(rank), {4, 1}, {0, 0}, {4, 1}), DType::kFloat64));
  const Planned made = Make({"s0, s1 -> s, axis = 1", "s -> s, dtype = 'float64'", "s^T -> d", "d -> d0, d1, axis = 1"},
                            std::move(source), std::move(target));
  ASSERT_EQ(made.moves.size(), 4u);
  for (const RenamedMove& move : made.moves) {
    EXPECT_EQ(move.bytes, 8);  // two stored floats
    ASSERT_EQ(move.steps->size(), 2u);
    EXPECT_EQ((*move.steps)[0].ToString(), "float64");
    EXPECT_EQ((*move.steps)[1].ToString(), "[1, 0]");
  }
  const RenamedMove& first = made.moves[0];  // d0[0:2] from s0[0:1], the same rank
  EXPECT_EQ(first.source_box, BoxAt(Shape{0, 0}, Shape{1, 2}));
  EXPECT_EQ(first.target_box, BoxAt(Shape{0, 0}, Shape{2, 1}));
  EXPECT_EQ(first.from, 0);
  EXPECT_EQ(first.to, 0);
}

TEST(RenamedPlan, SendsASourceBoxOnceToARankThatNeedsItTwice) {
  Side source, target;
  source.Add(0, Piece("a", {4}, {0}, {4}));
  target.Add(1, Piece("b", {4}, {0}, {4})).Add(1, Piece("c", {4}, {0}, {4})).Add(2, Piece("c", {4}, {0}, {4}));
  const Planned made = Make({"a -> b", "a -> c"}, std::move(source), std::move(target));
  EXPECT_EQ(made.plan.plan.moves.size(), 2u);  // to rank 1 and to rank 2
  EXPECT_EQ(made.moves.size(), 3u);
  EXPECT_EQ(made.plan.uses.size(), 2u);
}

TEST(RenamedPlan, CutsAMoveWhereAReshapeFoldsIt) {
  // Rows 0..3 and 3..6 of [6, 4] become parts of [3, 2, 4]: row 3 is in the middle of a block.
  Side source, target;
  source.Add(0, Piece("a", {6, 4}, {0, 0}, {3, 4})).Add(1, Piece("a", {6, 4}, {3, 0}, {3, 4}));
  target.Add(0, Piece("b", {3, 2, 4}, {0, 0, 0}, {3, 2, 4}));
  const Planned made = Make({"a -> b, reshape = '[3, 2, 4]'"}, std::move(source), std::move(target));
  std::vector<std::pair<std::string, std::string>> boxes;
  for (const RenamedMove& move : made.moves) boxes.emplace_back(Describe(move.source_box), Describe(move.target_box));
  EXPECT_THAT(boxes, testing::ElementsAre(testing::Pair("[[0, 2), [0, 4)]", "[[0, 1), [0, 2), [0, 4)]"),
                                          testing::Pair("[[2, 3), [0, 4)]", "[[1, 2), [0, 1), [0, 4)]"),
                                          testing::Pair("[[3, 4), [0, 4)]", "[[1, 2), [1, 2), [0, 4)]"),
                                          testing::Pair("[[4, 6), [0, 4)]", "[[2, 3), [0, 2), [0, 4)]")));
}

TEST(RenamedPlan, RefusesMoreMovesThanTheLimit) {
  Side source, target;
  for (int32_t rank : {0, 1}) source.Add(rank, Piece("a", {4, 4}, {rank * 2, 0}, {2, 4}));
  for (int32_t rank : {0, 1}) target.Add(rank, Piece("b", {4, 4}, {0, rank * 2}, {4, 2}));
  const Planned made = Make({"a -> b"}, std::move(source), std::move(target), {.moves_max = 4});
  EXPECT_TRUE(ListMoves(made.plan, made.source, made.target, 4).ok());
  EXPECT_EQ(ListMoves(made.plan, made.source, made.target, 3).error().code, ErrorCode::kTooLarge);
  const auto engine = EngineOf({"a -> b"}, made.source, made.target);
  const auto refused = MakeRenamedPlan(made.source, engine, made.target, {.moves_max = 3});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "tensor 'a': with it the plan has more moves than the limit of 3");
  const auto own = MakeRenamedPlan(made.source, engine, made.target, {.rank = 0, .moves_max = 2});
  EXPECT_EQ(own.ok() ? ErrorCode::kKey : own.error().code, ErrorCode::kTooLarge);
}

TEST(RenamedPlan, ListsKeysThatHaveNoSource) {
  Side source, target;
  source.Add(0, Piece("a", {4}, {0}, {4}));
  target.Add(0, Piece("a", {4}, {0}, {4})).Add(0, Piece("b", {2}, {0}, {2})).Add(0, Piece("a.w_0", {4}, {0}, {4}));
  const Planned made = Make({"_ -> b"}, std::move(source), std::move(target));
  EXPECT_THAT(made.plan.added, testing::ElementsAre(2));    // "b"
  EXPECT_THAT(made.plan.dropped, testing::ElementsAre(1));  // "a.w_0"
}

TEST(RenamedPlan, KeepsObjectsAsTheyAre) {
  ShardedObject object;
  object.key = "rng";
  object.grid_shape = {2};
  object.grid_offset = {1};
  Side source, target;
  source.Add(3, object).Add(0, Piece("a", {4}, {0}, {4}));
  target.Add(5, object).Add(0, Piece("b", {4}, {0}, {4}));
  const Planned made = Make({"a -> b"}, std::move(source), std::move(target));
  ASSERT_EQ(made.moves.size(), 2u);
  EXPECT_EQ(made.moves[1].from, 3);
  EXPECT_EQ(made.moves[1].to, 5);
}

// --- refusals ------------------------------------------------------------------------------------------------------

layout::LayoutError Refused(const std::vector<std::string>& statements, Side source, Side target,
                            std::optional<aoa::Diagnostic>* program = nullptr) {
  const Metadata held = source.Build(), wanted = target.Build();
  // The engine does not know the destination: what the planner itself sees.
  auto engine = aoa::Engine::Build({statements, TensorsOf(held), std::nullopt, {}});
  KINTSUGI_CHECK(engine.ok(), engine.status().ToString());
  const auto plan = MakeRenamedPlan(held, *engine, wanted);
  if (!plan.ok()) {
    if (program) *program = plan.error().program;
    return plan.error();
  }
  const auto error = CheckRenamed(*plan, held, wanted);
  KINTSUGI_CHECK(error.has_value(), "nothing was refused");
  return *error;
}

TEST(RenamedPlan, RefusesAnotherShape) {
  Side source, target;
  source.Add(0, Piece("a", {4}, {0}, {4}));
  target.Add(7, Piece("b", {3}, {0}, {3}));
  const auto error = Refused({"a -> b"}, std::move(source), std::move(target));
  EXPECT_EQ(error.code, ErrorCode::kStoredShape);
  EXPECT_EQ(
      error.message,
      "tensor 'b': [[0, 3)], asked for by rank 7, is asked for with global shape [3], but the program makes it with "
      "[4]");
}

TEST(RenamedPlan, RefusesAnotherDTypeWithTheStatement) {
  Side source, target;
  source.Add(0, Piece("a", {4}, {0}, {4}));
  target.Add(7, Typed(Piece("b", {4}, {0}, {4}), DType::kBFloat16));
  std::optional<aoa::Diagnostic> program;
  const auto error = Refused({"a -> b"}, std::move(source), std::move(target), &program);
  EXPECT_EQ(error.code, ErrorCode::kProgram);
  EXPECT_EQ(error.ranks, std::vector<int32_t>{7});
  ASSERT_TRUE(program.has_value());
  EXPECT_EQ(program->statement, 1);
  EXPECT_THAT(program->message, testing::HasSubstr("bfloat16"));
}

TEST(RenamedPlan, RefusesAStateOfAnotherDTypeThatNoStatementCasts) {
  Side source, target;
  source.Add(0, Piece("a", {4}, {0}, {4})).Add(0, Piece("a.w_0", {4}, {0}, {4}));
  target.Add(0, Piece("b", {4}, {0}, {4})).Add(0, Typed(Piece("b.w_0", {4}, {0}, {4}), DType::kBFloat16));
  EXPECT_EQ(Refused({"a -> b"}, std::move(source), std::move(target)).code, ErrorCode::kStoredDType);
}

// The states of a destination are called as it calls them, whatever wrote the source.
TEST(RenamedPlan, CastsAStateThatFollowsWhereTheOptionsAllowIt) {
  Side source, target;
  source.Add(0, Piece("a", {4}, {0}, {4})).Add(0, Piece("optimizer.exp_avg.a", {4}, {0}, {4}));
  target.Add(0, Piece("b", {4}, {0}, {4})).Add(0, Typed(Piece("b.moment1_0", {4}, {0}, {4}), DType::kBFloat16));
  const Planned made = Make({"a -> b"}, std::move(source), std::move(target), {.allow_cast = true});
  EXPECT_TRUE(made.plan.dropped.empty());
  ASSERT_EQ(made.moves.size(), 2u);
  EXPECT_EQ(made.source.keys[made.moves[1].source_key].name, "optimizer.exp_avg.a");
  ASSERT_EQ(made.moves[1].steps->size(), 1u);
  EXPECT_EQ(made.moves[1].steps->front().ToString(), "bfloat16");
  EXPECT_TRUE(made.moves[0].steps->empty());
}

TEST(RenamedPlan, RefusesWhatNobodyHolds) {
  Side source, target;
  source.Add(0, Piece("a", {4}, {0}, {3}));
  target.Add(0, Piece("b", {4}, {0}, {4}));
  EXPECT_EQ(Refused({"a -> b"}, std::move(source), std::move(target)).code, ErrorCode::kHole);
  Side other, unknown;
  other.Add(0, Piece("a", {4}, {0}, {4}));
  unknown.Add(0, Piece("c", {4}, {0}, {4}));
  EXPECT_EQ(Refused({"a -> b"}, std::move(other), std::move(unknown)).code, ErrorCode::kProgram);
}

// --- the proof -----------------------------------------------------------------------------------------------------

TEST(RenamedCheck, RefusesBrokenPlans) {
  Side source, target;
  for (int32_t rank : {0, 1}) source.Add(rank, Piece("a", {4, 4}, {rank * 2, 0}, {2, 4}));
  for (int32_t rank : {0, 1}) target.Add(rank, Piece("b", {4, 4}, {0, rank * 2}, {4, 2}));
  const Planned right = Make({"a^T -> b"}, std::move(source), std::move(target));
  const auto code_after = [&](auto change) {
    RenamedPlan broken = right.plan;
    change(broken);
    const auto error = CheckRenamed(broken, right.source, right.target);
    return error ? error->code : ErrorCode::kKey;
  };
  EXPECT_EQ(code_after([](RenamedPlan&) {}), ErrorCode::kKey);  // nothing is wrong
  EXPECT_EQ(code_after([](RenamedPlan& p) { p.uses.pop_back(); }), ErrorCode::kRankUnknown);
  EXPECT_EQ(code_after([](RenamedPlan& p) { p.uses[0].wanted_piece = 9; }), ErrorCode::kFormat);
  EXPECT_EQ(code_after([](RenamedPlan& p) { p.uses[0].target_piece = 9; }), ErrorCode::kFormat);
  EXPECT_EQ(code_after([](RenamedPlan& p) { std::swap(p.uses[0], p.uses[1]); }), ErrorCode::kFormat);
  EXPECT_EQ(code_after([](RenamedPlan& p) { p.uses[0].source_box.hi[0]--; }), ErrorCode::kFormat);
  EXPECT_EQ(code_after([](RenamedPlan& p) { p.uses[0].target_box.hi[0]--; }), ErrorCode::kLocalShape);
  EXPECT_EQ(code_after([](RenamedPlan& p) { p.uses[0].steps.clear(); }), ErrorCode::kLocalShape);
  EXPECT_EQ(code_after([](RenamedPlan& p) {
              p.uses[0].steps.push_back({aoa::PieceStepKind::kCast, DType::kFloat16, {}});
            }),
            ErrorCode::kStoredDType);
  EXPECT_EQ(code_after([](RenamedPlan& p) {
              ++p.uses[0].target_box.lo[1];
              ++p.uses[0].target_box.hi[1];
            }),
            ErrorCode::kOutOfBounds);
  EXPECT_EQ(code_after([](RenamedPlan& p) { p.uses[0].target_piece = 1 - p.uses[0].target_piece; }),
            ErrorCode::kOutOfBounds);
  EXPECT_EQ(code_after([](RenamedPlan& p) { p.added = {0}; }), ErrorCode::kFormat);
  EXPECT_EQ(code_after([](RenamedPlan& p) { p.added = {1}; }), ErrorCode::kFormat);
  EXPECT_EQ(code_after([](RenamedPlan& p) { p.plan.moves[0].bytes = 0; }), ErrorCode::kLocalShape);
  EXPECT_EQ(code_after([](RenamedPlan& p) { p.plan.source_digest ^= 1; }), ErrorCode::kDigest);
}

TEST(RenamedCheck, RefusesAPieceThatIsWrittenTwiceOrInPart) {
  Side source, target;
  source.Add(0, Piece("a", {4}, {0}, {4})).Add(0, Piece("c", {4}, {0}, {4}));
  target.Add(0, Piece("b", {8}, {0}, {8}));
  const Planned right = Make({"a, c -> b"}, std::move(source), std::move(target));
  RenamedPlan broken = right.plan;
  broken.uses[1].target_box = BoxAt(Shape{2}, Shape{4});  // over the end of the first, and a hole behind it
  const auto error = CheckRenamed(broken, right.source, right.target);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kOverlap);
  EXPECT_EQ(error->region, BoxAt(Shape{2}, Shape{1}));
}

// --- the map of steps ----------------------------------------------------------------------------------------------

TEST(StepMap, RefusesStepsThatLeadElsewhere) {
  const aoa::PieceStep transpose{aoa::PieceStepKind::kPermute, DType::kFloat32, {1, 0}};
  const aoa::PieceStep twice{aoa::PieceStepKind::kPermute, DType::kFloat32, {0, 0}};
  const aoa::PieceStep blocks{aoa::PieceStepKind::kReshape, DType::kFloat32, {2, 3, 4}};
  const Box box = BoxAt(Shape{0, 0}, Shape{6, 4});
  EXPECT_FALSE(StepMap::Make(box, box, {&transpose, 1}).ok());
  EXPECT_FALSE(StepMap::Make(box, box, {&twice, 1}).ok());
  EXPECT_FALSE(
      StepMap::Make(BoxAt(Shape{0, 0}, Shape{5, 4}), BoxAt(Shape{0, 0, 0}, Shape{5, 2, 2}), {&blocks, 1}).ok());
  EXPECT_TRUE(StepMap::Make(box, BoxAt(Shape{7, 7, 7}, Shape{2, 3, 4}), {&blocks, 1}).ok());
}

TEST(StepMap, RefusesToFallIntoMillionsOfBoxes) {
  const aoa::PieceStep flatten{aoa::PieceStepKind::kFlatten, DType::kFloat32, {int64_t{1} << 32, 4}};
  const int64_t half = int64_t{1} << 31;
  const auto map =
      StepMap::Make(BoxAt(Shape{0, 0, 0}, Shape{half, 2, 4}), BoxAt(Shape{0, 0}, Shape{2 * half, 4}), {&flatten, 1});
  ASSERT_TRUE(map.ok());
  std::vector<BoxPair> pairs;
  const auto error = map->Map(BoxAt(Shape{0, 0, 0}, Shape{half, 1, 4}), &pairs);  // every other row
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace kintsugi::plan
