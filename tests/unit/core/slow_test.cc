// Slow ranks: reported with figures, never acted on.
#include <gtest/gtest.h>

#include "runtime/core/slow_ranks.h"
#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

constexpr Duration kStep = 100ms;

// Ranks 0 to 3 enter gradient-sync of each step; rank 2 `late` after the others.
std::vector<SlowRanks::News> Steps(SlowRanks& slow, uint64_t first, int count, Duration late,
                                   TrainPhase seen_in = TrainPhase::kGradientSync) {
  std::vector<SlowRanks::News> all;
  for (int i = 0; i < count; ++i) {
    const uint64_t step = first + static_cast<uint64_t>(i);
    const TimePoint begin(std::chrono::seconds(static_cast<int64_t>(step)));
    for (int r : {0, 1, 3, 2}) {
      slow.OnPlace(Rank(r), {step, TrainPhase::kForward}, begin);
      slow.OnPlace(Rank(r), {step, seen_in}, begin + (r == 2 ? late : Duration()));
      for (const SlowRanks::News& news : slow.Take(kStep)) all.push_back(news);
    }
  }
  return all;
}

TEST(SlowRanks, NamesWhoIsLateStepAfterStep) {
  SlowRanks slow(4);
  EXPECT_TRUE(Steps(slow, 1, 11, 60ms).empty()) << "not yet twelve steps";
  EXPECT_FALSE(slow.LateBy(Rank(2)));
  const auto news = Steps(slow, 12, 9, 60ms);
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].rank, Rank(2));
  EXPECT_TRUE(news[0].slow);
  EXPECT_EQ(news[0].steps, 12);
  EXPECT_GT(*slow.LateBy(Rank(2)), 40ms);
  EXPECT_LE(*slow.LateBy(Rank(2)), 60ms);
  EXPECT_FALSE(slow.LateBy(Rank(1)));
  EXPECT_NE(ToString(news[0], kStep).find("ms behind the median rank"), std::string::npos);
}

TEST(SlowRanks, SaysWhenItIsOver) {
  SlowRanks slow(4);
  (void)Steps(slow, 1, 16, 60ms);
  EXPECT_TRUE(Steps(slow, 17, 11, 0ms).empty());
  const auto news = Steps(slow, 28, 1, 0ms);
  ASSERT_EQ(news.size(), 1u);
  EXPECT_FALSE(news[0].slow);
  EXPECT_FALSE(slow.LateBy(Rank(2)));
}

TEST(SlowRanks, ASmallOrRareDelayIsNone) {
  SlowRanks slow(4);
  EXPECT_TRUE(Steps(slow, 1, 40, 19ms).empty()) << "a fifth of a step is 20 ms";
  for (uint64_t step = 41; step < 141; ++step) EXPECT_TRUE(Steps(slow, step, 1, step % 2 ? 90ms : 0ms).empty()) << step;
}

TEST(SlowRanks, SeesALaterPhaseWhereTheFirstWasTooShort) {
  SlowRanks slow(4);
  EXPECT_EQ(Steps(slow, 1, 16, 60ms, TrainPhase::kParamSync).size(), 1u);
}

TEST(SlowRanks, JudgesNoStepThatSomebodyWasNotSeenIn) {
  SlowRanks slow(2);
  for (uint64_t step = 1; step < 60; ++step) {
    const TimePoint at(std::chrono::seconds(static_cast<int64_t>(step)));
    slow.OnPlace(Rank(0), {step, TrainPhase::kGradientSync}, at);
    if (step % 2) slow.OnPlace(Rank(1), {step, TrainPhase::kForward}, at + 90ms);
    EXPECT_TRUE(slow.Take(kStep).empty());
  }
}

TEST(SlowRanks, AnActivityOrANewStartSaysNothing) {
  SlowRanks slow(2);
  for (uint64_t step = 1; step < 60; ++step) {
    const TimePoint at(std::chrono::seconds(static_cast<int64_t>(step)));
    slow.OnPlace(Rank(0), {step, TrainPhase::kGradientSync}, at);
    if (step % 2) slow.Start(2);
    slow.OnPlace(Rank(1), {step, TrainPhase::kGradientSync, step % 2 ? Activity::kNone : Activity::kEval}, at + 90ms);
    EXPECT_TRUE(slow.Take(kStep).empty());
  }
}

TEST(SlowRanks, TheControllerTellsAndDoesNothing) {
  Bench bench(Bench::QuickPolicy(2));
  bench.Run();
  for (uint64_t step = 1; step < 40; ++step) {
    bench.CommitAll(step);
    for (auto phase : {TrainPhase::kForward, TrainPhase::kGradientSync, TrainPhase::kParamSync}) {
      bench.places[0] = {step + 1, phase};
      if (phase == TrainPhase::kForward) bench.places[1] = {step + 1, phase};
      bench.Pass(60ms);
      bench.places[1] = {step + 1, phase};
    }
    bench.Pass(60ms);
  }
  size_t told = 0;
  for (const Notice& notice : bench.All<Notice>()) told += notice.rank == Rank(1) && notice.text.starts_with("slow: ");
  EXPECT_EQ(told, 1u);
  EXPECT_TRUE(bench.core.LateBy(Rank(1)));
  EXPECT_EQ(bench.core.incidents(), 0u);
}

}  // namespace
}  // namespace kintsugi::core
