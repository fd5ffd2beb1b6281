// The plan as data: every element of the target comes once, from who holds it; what does not fit is refused by name.
#include "replica/live/piece_moves.h"

#include <gtest/gtest.h>

#include <map>

namespace kintsugi::live {
namespace {

constexpr int64_t kRows = 8, kColumns = 2;

ShardedTensor Rows(int64_t first, int64_t rows) {
  return {.key = "w", .global_shape = {kRows, kColumns}, .local_shape = {rows, kColumns}, .global_offset = {first, 0}};
}

ShardedTensor Flat(int64_t start, int64_t stop) {
  ShardedTensor shard = Rows(0, kRows);
  shard.flattened_range = FlatRange{start, stop};
  return shard;
}

TEST(PieceMoves, GiveEachElementOnceFromWhoHoldsIt) {
  const TensorsByRank held = {{Rank(0), {Rows(0, 4)}}, {Rank(1), {Rows(4, 4)}}, {Rank(3), {Rows(4, 4)}}};
  const TensorsByRank wanted = {{Rank(1), {Flat(0, 5)}}, {Rank(2), {Flat(5, 16)}}};
  const auto moves = PlanPieceMoves(held, wanted);
  ASSERT_TRUE(moves.ok()) << moves.status().ToString();
  std::map<int64_t, Rank> to;
  for (const PieceMove& move : *moves)
    for (int64_t row = move.lo[0]; row < move.hi[0]; ++row)
      for (int64_t column = move.lo[1]; column < move.hi[1]; ++column) {
        EXPECT_TRUE(to.emplace(row * kColumns + column, move.to).second) << "twice";
        EXPECT_EQ(move.from == Rank(0), row < 4) << move.from.ToString() << " does not hold row " << row;
      }
  ASSERT_EQ(to.size(), static_cast<size_t>(kRows * kColumns));
  for (const auto& [element, rank] : to) EXPECT_EQ(rank, element < 5 ? Rank(1) : Rank(2));
}

TEST(PieceMoves, AreRefusedWhereAPieceIsWithNobody) {
  const auto hole = PlanPieceMoves({{Rank(0), {Rows(0, 4)}}}, {{Rank(0), {Rows(0, 8)}}});
  ASSERT_FALSE(hole.ok());
  EXPECT_NE(hole.status().message().find("'w'"), std::string::npos) << hole.status().ToString();
  const auto unasked = PlanPieceMoves({{Rank(0), {Rows(0, 8)}}}, {{Rank(0), {Rows(0, 4)}}});
  ASSERT_FALSE(unasked.ok());
  EXPECT_NE(unasked.status().message().find("'w'"), std::string::npos) << unasked.status().ToString();
}

}  // namespace
}  // namespace kintsugi::live
