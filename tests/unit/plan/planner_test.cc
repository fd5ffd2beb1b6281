// MakePlan: who sends what to whom, and what it refuses.
#include "replica/plan/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/plan/plan_check.h"
#include "tests/unit/plan/worlds.h"

namespace kintsugi::plan {
namespace {

using layout::ErrorCode;
using layout::LayoutError;
using layout::Metadata;
using testing::ElementsAre;
using testing::HasSubstr;

// "0>2 [[0, 1), [2, 3)] 4B"
std::vector<std::string> Moves(const Plan& plan, const Metadata& target) {
  std::vector<std::string> moves;
  for (const KeyMoves& key : plan.keys)
    for (uint64_t i = key.first_move; i < key.first_move + key.move_count; ++i)
      moves.push_back(std::to_string(plan.moves[i].from) + ">" + std::to_string(plan.moves[i].to) + " " +
                      Describe(plan.BoxOf(key, i, target.keys[key.target_key].axes)) + " " +
                      std::to_string(plan.moves[i].bytes) + "B");
  return moves;
}

std::vector<std::string> MovesOf(const Metadata& source, const Metadata& target, const PlanOptions& options = {}) {
  const auto plan = MakePlan(source, target, options);
  if (!plan.ok()) return {plan.error().message};
  const auto error = CheckPlan(*plan, source, target);
  return error ? std::vector<std::string>{error->message} : Moves(*plan, target);
}

LayoutError ErrorOf(const Metadata& source, const Metadata& target) {
  const auto plan = MakePlan(source, target);
  EXPECT_FALSE(plan.ok());
  return plan.ok() ? LayoutError{} : plan.error();
}

TEST(MakePlan, TakesTensorParallelFourToTwo) {
  EXPECT_THAT(MovesOf(Grid("w", {8, 2}, {4, 1}), Grid("w", {8, 2}, {2, 1})),
              ElementsAre("0>0 [[0, 2), [0, 2)] 16B", "1>0 [[2, 4), [0, 2)] 16B", "2>1 [[4, 6), [0, 2)] 16B",
                          "3>1 [[6, 8), [0, 2)] 16B"));
}

TEST(MakePlan, TakesFlatRangesToFlatRangesAsNumbers) {
  EXPECT_THAT(MovesOf(Flattened("w", {12}, 2), Flattened("w", {12}, 3)),
              ElementsAre("0>0 [[0, 4)] 16B", "0>1 [[4, 6)] 8B", "1>1 [[6, 8)] 8B", "1>2 [[8, 12)] 16B"));
}

TEST(MakePlan, TakesFlatRangesToBoxes) {
  EXPECT_THAT(MovesOf(Flattened("w", {3, 4}, 2), Grid("w", {3, 4}, {1, 2})),
              ElementsAre("0>0 [[0, 1), [0, 2)] 8B", "0>0 [[1, 2), [0, 2)] 8B", "1>0 [[2, 3), [0, 2)] 8B",
                          "0>1 [[0, 1), [2, 4)] 8B", "1>1 [[1, 2), [2, 4)] 8B", "1>1 [[2, 3), [2, 4)] 8B"));
}

TEST(MakePlan, PrefersTheReceiverThenItsHost) {
  Side held, asked;
  for (int32_t rank : {0, 1, 4, 5}) held.Add(rank, Piece("w", {6}, {0}, {6}));
  for (int32_t rank : {1, 2, 6, 7}) asked.Add(rank, Piece("w", {6}, {0}, {6}));
  const std::vector<int32_t> hosts = {0, 0, 1, 0, 1, 1, 1, 0};
  const auto moves = MovesOf(held.Build(), asked.Build(), {.hosts = hosts});
  ASSERT_EQ(moves.size(), 4u);
  EXPECT_EQ(moves[0], "1>1 [[0, 6)] 24B");
  EXPECT_THAT(moves[1], testing::AnyOf(HasSubstr("4>2"), HasSubstr("5>2")));
  EXPECT_THAT(moves[2], testing::AnyOf(HasSubstr("4>6"), HasSubstr("5>6")));
  EXPECT_NE(moves[1][0], moves[2][0]) << "the two of the host take turns";
  EXPECT_THAT(moves[3], testing::AnyOf(HasSubstr("0>7"), HasSubstr("1>7")));
}

std::vector<int64_t> Sent(const Plan& plan, size_t ranks) {
  std::vector<int64_t> sent(ranks);
  for (const Move& move : plan.moves)
    if (move.from != move.to) sent[static_cast<size_t>(move.from)] += move.bytes;
  return sent;
}

// Ranks 0 to 3 hold two copies of two cells; others ask, and the holders send equally much.
TEST(MakePlan, LetsHoldersTakeTurns) {
  const Metadata source = Grid("w", {8, 8}, {2, 1}, 2);
  for (const Shape& pieces : {Shape{4, 1}, Shape{8, 1}, Shape{1, 4}, Shape{2, 2}, Shape{4, 4}, Shape{8, 8}}) {
    Side asked;
    const layout::Box grid = layout::WholeBox(pieces);
    for (int64_t i = 0; i < *Volume(grid); ++i) {
      const auto at = Unravel(grid, i);
      const int64_t rows = 8 / pieces[0], columns = 8 / pieces[1];
      asked.Add(static_cast<int32_t>(10 + i), Piece("w", {8, 8}, {at[0] * rows, at[1] * columns}, {rows, columns}));
    }
    const auto plan = MakePlan(source, asked.Build());
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(Sent(*plan, 4), std::vector<int64_t>(4, 64)) << DescribeShape(pieces);
  }
}

// One request for each of many keys of two sizes, whose names alternate: no holder gets all the large ones.
TEST(MakePlan, LetsHoldersTakeTurnsOverKeys) {
  Side held, asked;
  for (int layer = 10; layer < 50; ++layer)
    for (const auto& [name, size] : {std::pair{".bias", 2}, {".weight", 200}}) {
      for (int32_t rank = 0; rank < 4; ++rank) held.Add(rank, Piece(std::to_string(layer) + name, {size}, {0}, {size}));
      asked.Add(9, Piece(std::to_string(layer) + name, {size}, {0}, {size}));
    }
  const auto plan = MakePlan(held.Build(), asked.Build());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(Sent(*plan, 4), std::vector<int64_t>(4, 10 * 4 * 202));
}

TEST(MakePlan, TakesABoxAndTheFlatRangeOverAllOfItAsCopies) {
  Side held, asked;
  held.Add(0, Piece("w", {4}, {0}, {4}, FlatRange{0, 4})).Add(1, Piece("w", {4}, {0}, {4}));
  held.Add(2, Piece("w", {4}, {0}, {4}, FlatRange{0, 0}));
  for (int32_t rank : {0, 1, 2, 3}) asked.Add(rank, Piece("w", {4}, {0}, {4}));
  const auto moves = MovesOf(held.Build(), asked.Build());
  ASSERT_EQ(moves.size(), 4u);
  EXPECT_EQ(moves[0], "0>0 [[0, 4)] 16B");
  EXPECT_EQ(moves[1], "1>1 [[0, 4)] 16B");
  EXPECT_NE(moves[2][0], moves[3][0]);
}

TEST(MakePlan, GivesARankThatListsAPieceTwiceOneCopy) {
  Side held, asked;
  held.Add(0, Piece("w", {4}, {0}, {4}));
  ShardedTensor twice = Piece("w", {4}, {0}, {4});
  asked.Add(1, twice);
  twice.replica_id = {1};
  asked.Add(1, twice);
  EXPECT_THAT(MovesOf(held.Build(), asked.Build()), ElementsAre("0>1 [[0, 4)] 16B"));
}

TEST(MakePlan, OfScalarsObjectsAndShardsWithoutElements) {
  Side held, asked;
  held.Add(3, Piece("s", {}, {}, {})).Add(3, Piece("none", {0, 4}, {0, 0}, {0, 4}));
  asked.Add(1, Piece("s", {}, {}, {})).Add(1, Piece("none", {0, 4}, {0, 0}, {0, 4}));
  ShardedObject object;
  object.key = "rng";
  object.grid_shape = {2};
  object.grid_offset = {1};
  held.Add(3, object);
  asked.Add(0, object);
  EXPECT_THAT(MovesOf(held.Build(), asked.Build()), ElementsAre("3>0 [[1, 2)] 0B", "3>1 [] 4B"));
}

TEST(MakePlan, OfEmptyWorldsIsEmpty) {
  EXPECT_THAT(MovesOf(Side().Build(), Side().Build()), ElementsAre());
  EXPECT_THAT(MovesOf(Grid("w", {4}, {2}), Side().Build()), ElementsAre());
  EXPECT_EQ(ErrorOf(Side().Build(), Grid("w", {4}, {2})).code, ErrorCode::kUnexpected);
}

TEST(MakePlan, CutsAndFillsUpTensorsOfAnotherShapeWhereThatIsAllowed) {
  Side held, asked;
  held.Add(0, Piece("w", {4, 3}, {0, 0}, {4, 3}));
  for (int32_t rank : {0, 1}) {
    ShardedTensor piece = Piece("w", {6, 2}, {rank * 3, 0}, {3, 2});
    piece.allow_shape_mismatch = true;
    asked.Add(rank, piece);
  }
  EXPECT_THAT(MovesOf(held.Build(), asked.Build()), ElementsAre("0>0 [[0, 3), [0, 2)] 24B", "0>1 [[3, 4), [0, 2)] 8B"));
}

// --- refusals ------------------------------------------------------------------------------------------------------

TEST(MakePlan, NamesAnElementThatNoSourceHolds) {
  Side held, asked;
  held.Add(0, Piece("w", {4, 6}, {0, 0}, {4, 2})).Add(1, Piece("w", {4, 6}, {0, 3}, {4, 3}));
  const LayoutError error = ErrorOf(held.Build(), asked.Add(5, Piece("w", {4, 6}, {1, 0}, {2, 6})).Build());
  EXPECT_EQ(error.code, ErrorCode::kHole);
  EXPECT_EQ(error.key, "w");
  EXPECT_EQ(error.ranks, std::vector<int32_t>{5});
  EXPECT_EQ(Describe(*error.region), "[[1, 3), [2, 3)]");
  EXPECT_THAT(error.message, HasSubstr("10 of 12 elements"));
}

TEST(MakePlan, NamesAHoleInAFlatRange) {
  Side held, asked;
  held.Add(0, Piece("w", {3, 4}, {0, 0}, {3, 4}, FlatRange{0, 5}))
      .Add(1, Piece("w", {3, 4}, {0, 0}, {3, 4}, FlatRange{7, 12}));
  const LayoutError error =
      ErrorOf(held.Build(), asked.Add(2, Piece("w", {3, 4}, {0, 0}, {3, 4}, FlatRange{3, 9})).Build());
  EXPECT_EQ(error.code, ErrorCode::kHole);
  EXPECT_EQ(Describe(*error.region), "[[1, 2), [1, 3)]");
  EXPECT_THAT(error.message, HasSubstr("4 of 6 elements"));
}

TEST(MakePlan, NamesSourcesThatOverlap) {
  Side held, asked;
  held.Add(0, Piece("w", {4}, {0}, {3})).Add(1, Piece("w", {4}, {2}, {2}));
  asked.Add(7, Piece("w", {4}, {0}, {4}));
  const LayoutError error = ErrorOf(held.Build(), asked.Build());
  EXPECT_EQ(error.code, ErrorCode::kOverlap);
  EXPECT_EQ(Describe(*error.region), "[[2, 3)]");
  Side flat, whole;
  flat.Add(0, Piece("w", {4}, {0}, {4}, FlatRange{0, 3})).Add(1, Piece("w", {4}, {0}, {4}, FlatRange{2, 4}));
  EXPECT_EQ(ErrorOf(flat.Build(), whole.Add(7, Piece("w", {4}, {0}, {4})).Build()).code, ErrorCode::kOverlap);
}

TEST(MakePlan, RefusesOtherDTypesAndShapesAndKeys) {
  Side held, asked;
  held.Add(0, Piece("w", {4}, {0}, {4}));
  ShardedTensor half = Piece("w", {4}, {0}, {4});
  half.dtype = DType::kBFloat16;
  const Metadata source = held.Build(), target = asked.Add(1, half).Build();
  EXPECT_EQ(ErrorOf(source, target).code, ErrorCode::kStoredDType);
  // With a cast the stored bytes are sent.
  EXPECT_THAT(MovesOf(source, target, {.allow_cast = true}), ElementsAre("0>1 [[0, 4)] 16B"));
  EXPECT_EQ(ErrorOf(source, Grid("w", {5}, {1})).code, ErrorCode::kStoredShape);
  EXPECT_EQ(ErrorOf(source, Grid("v", {4}, {1})).code, ErrorCode::kUnexpected);
}

TEST(MakePlan, RefusesPiecesOutOfBounds) {
  Side held, asked;
  held.Add(0, Piece("w", {4}, {0}, {4}));
  asked.Add(1, Piece("w", {4}, {2}, {3}));
  EXPECT_EQ(ErrorOf(held.Build(), asked.Build()).code, ErrorCode::kOutOfBounds);
  asked.Add(1, Piece("w", {4}, {0}, {4}, FlatRange{2, 5}));
  EXPECT_EQ(ErrorOf(Grid("w", {4}, {1}), asked.Build()).code, ErrorCode::kFlatRange);
}

}  // namespace
}  // namespace kintsugi::plan
