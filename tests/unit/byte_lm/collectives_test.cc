#include "integrations/examples/byte_lm/collectives.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/unit/byte_lm/thread_collectives.h"

namespace kintsugi::byte_lm {
namespace {

TEST(SingleRank, GathersItsOwnPart) {
  SingleRank one;
  float all[3] = {0, 0, 0};
  const float mine[3] = {1, 2, 3};
  ASSERT_TRUE(one.AllGather(mine, 3, all).ok());
  EXPECT_EQ(std::vector<float>(all, all + 3), (std::vector<float>{1, 2, 3}));
  ASSERT_TRUE(one.AllReduceSum(all, 3).ok());
  EXPECT_EQ(all[2], 3);
}

TEST(GatherSum, GivesEveryRankTheSameDoubleInRankOrder) {
  constexpr int kRanks = 3;
  ThreadGroup group(kRanks);
  // In this order, and in no other, the small value survives beside the large ones.
  const double values[kRanks] = {1e17, -1e17, 0.1};
  double sums[kRanks] = {};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] { sums[rank] = GatherSum(group.member(rank), values[rank]).value(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (double sum : sums) EXPECT_EQ(sum, 0.1);
}

TEST(GatherSum, PassesAFailureOn) {
  ThreadGroup group(2);
  group.Break();
  EXPECT_EQ(GatherSum(group.member(0), 1.0).status().code(), StatusCode::kCommFailure);
}

}  // namespace
}  // namespace kintsugi::byte_lm
