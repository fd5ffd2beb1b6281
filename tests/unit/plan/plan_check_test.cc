// CheckPlan: right plans pass; each way of breaking one is refused, with its own code.
#include "replica/plan/plan_check.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/plan/worlds.h"

namespace kintsugi::plan {
namespace {

using layout::ErrorCode;
using layout::LayoutError;
using layout::Metadata;

// Two tensors, one on a grid with two copies of each cell, one flat, to another grid and to other flat ranges.
class BrokenPlan : public testing::Test {
 protected:
  BrokenPlan() {
    Side held, asked;
    for (int32_t rank = 0; rank < 4; ++rank) {
      held.Add(rank, Piece("a", {8, 6}, {rank % 2 * 4, 0}, {4, 6}));
      held.Add(rank, Piece("b", {5, 7}, {0, 0}, {5, 7}, FlatRange{rank * 8, rank == 3 ? 35 : rank * 8 + 8}));
    }
    for (int32_t rank = 2; rank < 8; ++rank) {
      const int32_t part = rank % 3;
      asked.Add(rank, Piece("a", {8, 6}, {0, part * 2}, {8, 2}));
      if (rank < 5)
        asked.Add(rank, Piece("b", {5, 7}, {0, 0}, {5, 7}, FlatRange{part * 12, part == 2 ? 35 : part * 12 + 12}));
    }
    source_ = held.Build();
    target_ = asked.Build();
    plan_ = *MakePlan(source_, target_);
  }

  int Axes(size_t key) const { return target_.keys[key].axes; }
  int64_t* Coordinates(size_t move) {
    const KeyMoves& key = plan_.keys[move < plan_.keys[1].first_move ? 0 : 1];
    return plan_.coordinates.data() + key.first_coordinate + (move - key.first_move) * 4;
  }
  void Resize(size_t move, int axis, int64_t lo, int64_t hi) {
    int64_t* box = Coordinates(move);
    box[axis] += lo;
    box[2 + axis] += hi;
    plan_.moves[move].bytes = (box[2] - box[0]) * (box[3] - box[1]) * 4;
  }
  // Puts a copy of `move` behind it.
  void Double(size_t move) {
    const std::vector<int64_t> box(Coordinates(move), Coordinates(move) + 4);
    plan_.coordinates.insert(plan_.coordinates.begin() + (Coordinates(move) - plan_.coordinates.data()) + 4,
                             box.begin(), box.end());
    plan_.moves.insert(plan_.moves.begin() + static_cast<ptrdiff_t>(move), plan_.moves[move]);
    Count(move, 1);
  }
  void Drop(size_t move) {
    const auto at = plan_.coordinates.begin() + (Coordinates(move) - plan_.coordinates.data());
    plan_.coordinates.erase(at, at + 4);
    plan_.moves.erase(plan_.moves.begin() + static_cast<ptrdiff_t>(move));
    Count(move, -1);
  }
  void Count(size_t move, int64_t more) {
    const size_t key = move < plan_.keys[1].first_move ? 0 : 1;
    plan_.keys[key].move_count += static_cast<uint64_t>(more);
    if (key == 0) {
      plan_.keys[1].first_move += static_cast<uint64_t>(more);
      plan_.keys[1].first_coordinate += static_cast<uint64_t>(4 * more);
    }
  }
  LayoutError Refusal() {
    const auto error = CheckPlan(plan_, source_, target_);
    EXPECT_TRUE(error) << "the broken plan passed";
    return error.value_or(LayoutError{});
  }
  void ExpectRefused(ErrorCode code) {
    const LayoutError error = Refusal();
    EXPECT_EQ(layout::ErrorCodeName(error.code), layout::ErrorCodeName(code)) << error.message;
    EXPECT_FALSE(error.message.empty());
  }
  // Every move is broken in turn.
  void ExpectEachRefused(ErrorCode code, const std::function<void(size_t)>& break_it) {
    const Plan right = plan_;
    for (size_t move = 0; move < right.moves.size(); ++move) {
      SCOPED_TRACE("move " + std::to_string(move));
      plan_ = right;
      break_it(move);
      ExpectRefused(code);
    }
  }

  Metadata source_, target_;
  Plan plan_;
};

TEST_F(BrokenPlan, IsRightBeforeItIsBroken) {
  const auto error = CheckPlan(plan_, source_, target_);
  EXPECT_FALSE(error) << error->message;
  EXPECT_GT(plan_.keys[0].move_count, 8u);
  EXPECT_GT(plan_.keys[1].move_count, 8u);
}

TEST_F(BrokenPlan, WithAMoveDropped) {
  ExpectEachRefused(ErrorCode::kHole, [&](size_t move) { Drop(move); });
}

TEST_F(BrokenPlan, WithAMoveDoubled) {
  ExpectEachRefused(ErrorCode::kOverlap, [&](size_t move) { Double(move); });
}

TEST_F(BrokenPlan, WithAMoveShifted) {
  for (const int axis : {0, 1})
    for (const int64_t by : {-1, 1}) {
      const Plan right = plan_;
      for (size_t move = 0; move < right.moves.size(); ++move) {
        plan_ = right;
        Resize(move, axis, by, by);
        Refusal();
      }
      plan_ = right;
    }
  Resize(0, 0, 1, 1);
  ExpectRefused(ErrorCode::kOutOfBounds);
}

TEST_F(BrokenPlan, WithAMoveEnlarged) {
  for (const int axis : {0, 1}) {
    const Plan right = plan_;
    for (size_t move = 0; move < right.moves.size(); ++move)
      for (const auto& [lo, hi] : {std::pair<int64_t, int64_t>{-1, 0}, {0, 1}}) {
        plan_ = right;
        Resize(move, axis, lo, hi);
        Refusal();
      }
    plan_ = right;
  }
}

TEST_F(BrokenPlan, WithAMoveMadeSmaller) {
  const Plan right = plan_;
  for (size_t move = 0; move < right.moves.size(); ++move)
    for (const int axis : {0, 1}) {
      plan_ = right;
      if (Coordinates(move)[2 + axis] - Coordinates(move)[axis] < 2) continue;
      Resize(move, axis, 0, -1);
      ExpectRefused(ErrorCode::kHole);
    }
}

TEST_F(BrokenPlan, WithAnEmptyMove) {
  ExpectEachRefused(ErrorCode::kOutOfBounds, [&](size_t move) {
    Coordinates(move)[2] = Coordinates(move)[0];
    plan_.moves[move].bytes = 0;
  });
}

TEST_F(BrokenPlan, FromARankThatDoesNotHoldIt) {
  ExpectEachRefused(ErrorCode::kRankUnknown, [&](size_t move) { plan_.moves[move].from = 7; });
  const LayoutError error = Refusal();
  EXPECT_EQ(error.ranks, std::vector<int32_t>{7});
  EXPECT_NE(error.message.find("is held by rank"), std::string::npos) << error.message;
}

TEST_F(BrokenPlan, FromAnotherRanksPiece) {
  // Another piece of the key, and a holder of it: the box is not there.
  ExpectEachRefused(ErrorCode::kOutOfBounds, [&](size_t move) {
    Move& changed = plan_.moves[move];
    const auto& key = source_.keys[move < plan_.keys[1].first_move ? 0 : 1];
    changed.source_piece = key.first_piece + (changed.source_piece - key.first_piece + 1) % key.piece_count;
    changed.from = source_.Piece(key, changed.source_piece).holders.front().rank;
  });
}

TEST_F(BrokenPlan, ToARankThatDoesNotWantIt) {
  ExpectEachRefused(ErrorCode::kRankUnknown, [&](size_t move) { plan_.moves[move].to = 0; });
}

TEST_F(BrokenPlan, ToAnotherRankThanIts) {
  // Two ranks ask for the piece: one gets a part twice, the other never.
  size_t move = 0;
  while (target_.Piece(target_.keys[0], plan_.moves[move].target_piece).holders.size() < 2) ++move;
  const auto holders = target_.Piece(target_.keys[0], plan_.moves[move].target_piece).holders;
  plan_.moves[move].to = plan_.moves[move].to == holders[0].rank ? holders[1].rank : holders[0].rank;
  EXPECT_NE(Refusal().code, ErrorCode::kFormat);
}

TEST_F(BrokenPlan, OfAnotherKey) {
  ExpectEachRefused(ErrorCode::kKey, [&](size_t move) {
    const bool is_first = move < plan_.keys[1].first_move;
    plan_.moves[move].source_piece = source_.keys[is_first ? 1 : 0].first_piece;
  });
}

TEST_F(BrokenPlan, WhoseKeysAreSwapped) {
  std::swap(plan_.keys[0].source_key, plan_.keys[1].source_key);
  ExpectRefused(ErrorCode::kKey);
  plan_.keys[0].source_key = 12;
  ExpectRefused(ErrorCode::kKey);
}

TEST_F(BrokenPlan, WithAPieceThatIsNotThere) {
  ExpectEachRefused(ErrorCode::kKey, [&](size_t move) { plan_.moves[move].target_piece = 1000000; });
}

TEST_F(BrokenPlan, WithWrongBytes) {
  ExpectEachRefused(ErrorCode::kLocalShape, [&](size_t move) { plan_.moves[move].bytes += 4; });
  EXPECT_NE(Refusal().message.find("bytes"), std::string::npos);
}

TEST_F(BrokenPlan, WithTwoMovesThatOverlapAndAHoleOfTheSameSize) {
  // Sizes add up: the last move of a piece is replaced by the first one's box, where both have one size.
  int tried = 0;
  const Plan right = plan_;
  for (size_t move = 1; move < right.moves.size(); ++move) {
    plan_ = right;
    const Move before = right.moves[move - 1];
    Move& changed = plan_.moves[move];
    if (before.target_piece != changed.target_piece || before.to != changed.to || before.bytes != changed.bytes)
      continue;
    std::copy_n(Coordinates(move - 1), 4, Coordinates(move));
    changed = before;
    ExpectRefused(ErrorCode::kOverlap);
    ++tried;
  }
  EXPECT_GT(tried, 0);
}

TEST_F(BrokenPlan, WhoseMovesAreOutOfOrder) {
  const size_t last = plan_.keys[1].first_move - 1;
  std::swap_ranges(Coordinates(0), Coordinates(0) + 4, Coordinates(last));
  std::swap(plan_.moves[0], plan_.moves[last]);
  Refusal();
}

TEST_F(BrokenPlan, WhoseArraysDoNotFit) {
  const Plan right = plan_;
  plan_.moves.pop_back();
  ExpectRefused(ErrorCode::kFormat);
  plan_ = right;
  plan_.coordinates.pop_back();
  ExpectRefused(ErrorCode::kFormat);
  plan_ = right;
  plan_.keys.pop_back();
  ExpectRefused(ErrorCode::kFormat);
  plan_ = right;
  plan_.keys[1].first_move += 1;
  ExpectRefused(ErrorCode::kFormat);
  plan_ = right;
  plan_.keys[1].move_count = UINT64_MAX;
  ExpectRefused(ErrorCode::kFormat);
  plan_ = right;
  plan_.keys[0].target_key = 1;
  ExpectRefused(ErrorCode::kFormat);
}

TEST_F(BrokenPlan, ForOtherLayouts) {
  plan_.source_digest ^= 1;
  ExpectRefused(ErrorCode::kDigest);
  plan_.source_digest ^= 1;
  target_ = Grid("a", {8, 6}, {2, 1});
  ExpectRefused(ErrorCode::kDigest);
}

TEST_F(BrokenPlan, OfOneRankWithOthersMoves) {
  plan_.rank = 5;
  ExpectRefused(ErrorCode::kRankUnknown);
  plan_ = *MakePlan(source_, target_, {.rank = 5});
  EXPECT_FALSE(CheckPlan(plan_, source_, target_));
  ASSERT_GT(plan_.moves.size(), 0u);
  Drop(0);
  ExpectRefused(ErrorCode::kHole);
}

// More boxes than are compared pair by pair: columns, which are in no row-major order, of uneven heights.
TEST(CheckPlan, FindsAnOverlapAmongManyBoxesThatAreNoGrid) {
  Side held, asked;
  for (int64_t column = 0; column < 40; ++column) {
    const int64_t cut = 1 + column % 5;
    held.Add(0, Piece("w", {8, 40}, {0, column}, {cut, 1})).Add(1, Piece("w", {8, 40}, {cut, column}, {8 - cut, 1}));
  }
  asked.Add(2, Piece("w", {8, 40}, {0, 0}, {8, 40}));
  const Metadata source = held.Build(), target = asked.Build();
  Plan plan = *MakePlan(source, target);
  ASSERT_EQ(plan.moves.size(), 80u);
  EXPECT_FALSE(CheckPlan(plan, source, target));
  for (size_t i = 0; i < 80; ++i)
    for (size_t j = 0; j < 80; ++j) {
      if (i == j || plan.moves[i].bytes != plan.moves[j].bytes) continue;
      Plan broken = plan;
      broken.moves[i] = plan.moves[j];
      std::copy_n(plan.coordinates.begin() + static_cast<ptrdiff_t>(4 * j), 4,
                  broken.coordinates.begin() + static_cast<ptrdiff_t>(4 * i));
      const auto error = CheckPlan(broken, source, target);
      ASSERT_TRUE(error);
      ASSERT_EQ(error->code, ErrorCode::kOverlap);
    }
}

TEST(CheckPlan, CountsWhatAFlatRangeOfALargerTensorWants) {
  Side held, asked;
  held.Add(0, Piece("w", {3, 3}, {0, 0}, {3, 3}));
  ShardedTensor larger = Piece("w", {4, 5}, {0, 0}, {4, 5}, FlatRange{2, 17});
  larger.allow_shape_mismatch = true;
  asked.Add(1, larger);
  const Metadata source = held.Build(), target = asked.Build();
  Plan plan = *MakePlan(source, target);
  EXPECT_EQ(TrafficOf(plan).bytes_total, 7 * 4);
  EXPECT_FALSE(CheckPlan(plan, source, target));
}

}  // namespace
}  // namespace kintsugi::plan
