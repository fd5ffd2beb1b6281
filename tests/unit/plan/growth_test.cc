// How the work grows, by counting it: with shards and moves, never with their pairs.
#include <gtest/gtest.h>

#include <cmath>

#include "replica/plan/plan_check.h"
#include "runtime/base/random.h"
#include "tests/unit/plan/worlds.h"

namespace kintsugi::plan {
namespace {

using layout::Metadata;

struct Work {
  double plan = 0, check = 0, moves = 0;
};

Work Measure(const Metadata& source, const Metadata& target) {
  PlanCost plan_cost;
  CheckCost check_cost;
  const auto plan = MakePlan(source, target, {.cost = &plan_cost});
  EXPECT_TRUE(plan.ok());
  EXPECT_FALSE(CheckPlan(*plan, source, target, &check_cost));
  return {static_cast<double>(plan_cost.steps), static_cast<double>(check_cost.steps),
          static_cast<double>(plan->moves.size())};
}

// The exponent of steps over moves.
void ExpectLinear(const Work& small, const Work& large) {
  const double moves = std::log(large.moves / small.moves);
  EXPECT_GT(moves, 1.0);
  EXPECT_LT(std::log(large.plan / small.plan) / moves, 1.2);
  EXPECT_LT(std::log(large.check / small.check) / moves, 1.2);
}

TEST(Growth, OfGridsIsLinearInMoves) {
  const auto line = [](int64_t n) { return Measure(Grid("w", {60 * n}, {3 * n}), Grid("w", {60 * n}, {4 * n})); };
  ExpectLinear(line(100), line(1600));
  const auto plane = [](int64_t n) {
    return Measure(Grid("w", {12 * n, 12 * n}, {3 * n, n}), Grid("w", {12 * n, 12 * n}, {n, 4 * n}));
  };
  ExpectLinear(plane(8), plane(32));
}

TEST(Growth, OfFlatRangesIsLinearInMoves) {
  const auto flat = [](int32_t n) { return Measure(Flattened("w", {n, 60}, 3 * n), Flattened("w", {n, 60}, 4 * n)); };
  ExpectLinear(flat(100), flat(1600));
  // Columns take a little of every row, and nothing lies between.
  const auto columns = [](int64_t n) {
    return Measure(Flattened("w", {n, n}, static_cast<int32_t>(n)), Grid("w", {n, n}, {1, n}));
  };
  ExpectLinear(columns(16), columns(64));
}

// Slabs of random heights in each column: no grid on either side.
Metadata Slabs(int64_t columns, int64_t rows, bool is_turned, uint64_t seed) {
  Random random(seed);
  Side side;
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t at = 0; at < rows;) {
      const int64_t length = std::min<int64_t>(rows - at, 1 + static_cast<int64_t>(random.Below(6)));
      side.Add(static_cast<int32_t>(random.Below(16)), is_turned
                                                           ? Piece("w", {columns, rows}, {column, at}, {1, length})
                                                           : Piece("w", {rows, columns}, {at, column}, {length, 1}));
      at += length;
    }
  return side.Build();
}

TEST(Growth, OfTilingsThatAreNoGridIsNearlyLinearInMoves) {
  const auto slabs = [](int64_t n) { return Measure(Slabs(n, n, false, 1), Slabs(n, n, true, 2)); };
  ExpectLinear(slabs(24), slabs(192));
}

TEST(Growth, OfOneRanksPlanFollowsItsOwnMoves) {
  const Metadata source = Grid("w", {1200, 1200}, {30, 10}), target = Grid("w", {1200, 1200}, {10, 40});
  PlanCost all, own;
  const auto plan = MakePlan(source, target, {.cost = &all});
  const auto part = MakePlan(source, target, {.rank = 17, .cost = &own});
  ASSERT_TRUE(plan.ok() && part.ok());
  EXPECT_LT(own.steps * 20, all.steps);
}

TEST(Growth, OfMemoryIsLinearInMoves) {
  const auto plan = MakePlan(Grid("w", {1200, 1200}, {30, 10}), Grid("w", {1200, 1200}, {10, 40}));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->MemoryBytes(), plan->moves.size() * (24 + 2 * 16) + sizeof(KeyMoves));
}

}  // namespace
}  // namespace kintsugi::plan
