// Spares, as the controller counts them: which death one is there for, and what the ladder says of it.
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/core/spare_counts.h"
#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

Rung LastRung(const Bench& bench) { return bench.All<IncidentClosed>().back().record.rung.value(); }

Bench SpareBench() {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(5);
  return bench;
}

TEST(Spares, AWaitingOneIsTheRungAndIsGoneAfterwards) {
  Bench bench = SpareBench();
  bench.Feed(SparesWaiting{Rank(0), 4, 1});
  bench.Exit(1);
  EXPECT_EQ(LastRung(bench), Rung::kSpare);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  bench.Exit(1);
  EXPECT_EQ(LastRung(bench), Rung::kRespawn);
  bench.Feed(SparesWaiting{Rank(0), 4, 1});
  bench.Exit(2);
  EXPECT_EQ(LastRung(bench), Rung::kSpare);
}

TEST(Spares, ServeTheirOwnNodeOnly) {
  Bench bench = SpareBench();
  bench.Feed(SparesWaiting{Rank(2), 2, 2});
  bench.Exit(1);
  EXPECT_EQ(LastRung(bench), Rung::kRespawn);
  bench.Exit(3);
  EXPECT_EQ(LastRung(bench), Rung::kSpare);
  bench.Feed(SparesWaiting{Rank(2), 2, 0});  // the node is gone
  bench.Exit(3);
  EXPECT_EQ(LastRung(bench), Rung::kRespawn);
}

TEST(Spares, OneForTwoDeathsIsNotEnough) {
  Bench bench = SpareBench();
  bench.Feed(SparesWaiting{Rank(0), 4, 1});
  bench.hold = Phase::kLock;
  bench.Exit(1);
  bench.hold.reset();
  bench.Exit(2);
  EXPECT_EQ(LastRung(bench), Rung::kRespawn);
}

TEST(Spares, OneThatDiesAtItsPlaceIsNoSpareAnyMore) {
  Bench bench = SpareBench();
  bench.Feed(SparesWaiting{Rank(0), 4, 1});
  bench.hold = Phase::kLock;
  bench.Exit(1);
  bench.Exit(1, "killed by SIGKILL");  // the one that had taken its place
  bench.hold.reset();
  for (int r : {0, 2, 3}) bench.Say(r, LockReply{GateState::kCommitted, Step(5)});
  EXPECT_EQ(LastRung(bench), Rung::kRespawn);
}

TEST(Spares, CostARespawn) {
  Policy policy = Bench::QuickPolicy(4);
  policy.max_respawns = 1;
  Bench bench(policy);
  bench.Run();
  bench.CommitAll(5);
  bench.Feed(SparesWaiting{Rank(0), 4, 8});
  bench.Exit(1);
  EXPECT_EQ(LastRung(bench), Rung::kSpare);
  EXPECT_EQ(bench.member(1).respawns, 1);
  bench.CommitAll(6);
  bench.Exit(1);
  EXPECT_GT(LastRung(bench), Rung::kRespawn) << "a spare is no way around the limit";
}

TEST(Spares, NonsenseIsNoSpare) {
  Bench bench = SpareBench();
  for (const SparesWaiting& spares :
       {SparesWaiting{Rank(-1), 4, 1}, SparesWaiting{Rank(4), 1, 1}, SparesWaiting{Rank(0), 0, 1},
        SparesWaiting{Rank(0), 5, 1}, SparesWaiting{Rank(0), 4, -1}, SparesWaiting{Rank(1), INT32_MAX, 1}})
    bench.Feed(spares);
  bench.Exit(1);
  EXPECT_EQ(LastRung(bench), Rung::kRespawn);
}

TEST(SpareCounts, TakeOneOfTheRanksOwnNodeForAsLongAsOneWaits) {
  SpareCounts spares(4);
  EXPECT_FALSE(spares.Take(Rank(0)));
  spares.Tell({Rank(0), 2, 1});
  spares.Tell({Rank(2), 2, 1});
  EXPECT_TRUE(spares.Take(Rank(3)));
  EXPECT_FALSE(spares.Take(Rank(2)));
  EXPECT_TRUE(spares.Take(Rank(1)));
  EXPECT_FALSE(spares.Take(Rank(1)));
  spares.Tell({Rank(0), 2, 1});  // its launcher knows better
  EXPECT_TRUE(spares.Take(Rank(0)));
}

TEST(SpareCounts, DoNotTakeWhatFitsNoNodeOfTheWorld) {
  SpareCounts spares(4);
  spares.Tell({Rank(-1), 2, 1});
  spares.Tell({Rank(0), 0, 1});
  spares.Tell({Rank(2), 3, 1});
  spares.Tell({Rank(0), 4, -1});
  for (int r = 0; r < 4; ++r) EXPECT_FALSE(spares.Take(Rank(r)));
  EXPECT_THROW(spares.Take(Rank(4)), CheckFailure);
}

}  // namespace
}  // namespace kintsugi::core
