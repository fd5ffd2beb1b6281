// ControllerCore, one promise at a time. Random sequences of faults are cluster_test's.
#include <gtest/gtest.h>

#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

TEST(Controller, StartsARunAndEndsItWhenAllHaveFinished) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  bench.CommitAll(9);
  for (int r = 0; r < 4; ++r) bench.Say(r, Finished{Step(9)});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitSuccess);
}

TEST(Controller, ReplacesADeadRankAndRepairsItFromItsReplica) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(5);
  bench.Exit(1);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  const auto orders = bench.Orders(Phase::kRepair, 1);
  ASSERT_EQ(orders.size(), 1u);
  ASSERT_EQ(orders[0].moves.size(), 1u);
  EXPECT_EQ(orders[0].moves[0].destination, Rank(1));
  EXPECT_EQ(orders[0].moves[0].sources, std::vector<Rank>{Rank(3)});
  const auto incidents = bench.All<IncidentClosed>();
  ASSERT_EQ(incidents.size(), 1u);
  EXPECT_EQ(incidents[0].record.rung, Rung::kRespawn);
  EXPECT_EQ(incidents[0].record.step, Step(5));
  EXPECT_EQ(incidents[0].record.ranks, std::vector<Rank>{Rank(1)});
}

TEST(Controller, KillsOnlyTheRankThatMissedADeadline) {
  for (Phase phase : {Phase::kLock, Phase::kStop, Phase::kClean, Phase::kRebuild, Phase::kVerify, Phase::kRollback}) {
    Bench bench(Bench::QuickPolicy(4));
    bench.Run();
    bench.CommitAll(5);
    bench.hold = phase;
    bench.Say(3, FaultReport{.kind = FaultKind::kException});
    ASSERT_EQ(bench.core.phase(), phase);
    bench.hold.reset();
    // Everybody but rank 1 answers.
    for (int r : {0, 2, 3}) {
      if (phase == Phase::kLock) bench.Say(r, LockReply{GateState::kCommitted, Step(5)});
      else if (phase == Phase::kStop) bench.Say(r, Parked{GateState::kCommitted, Step(5)});
      else bench.Say(r, PhaseDone{.phase = phase, .digests = {{0, 1}}});
    }
    ASSERT_EQ(bench.core.phase(), phase);
    bench.Pass(50s);
    EXPECT_EQ(bench.Killed(), std::set<int>{1}) << PhaseName(phase);
    EXPECT_EQ(bench.core.phase(), Phase::kRunning) << PhaseName(phase);
  }
}

TEST(Controller, RespawnsARankWhoseHandlerFailsAgainAndAgain) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(5);
  bench.hold = Phase::kRebuild;
  bench.Say(0, FaultReport{.kind = FaultKind::kException});
  for (int round = 1; round <= 3; ++round) {
    ASSERT_EQ(bench.core.phase(), Phase::kRebuild) << round;
    ASSERT_TRUE(bench.Killed().empty());
    // Its peers notice first that something is wrong.
    for (int r : {0, 1, 3}) bench.Say(r, PhaseDone{.phase = Phase::kRebuild, .code = StatusCode::kCommFailure});
    bench.Say(2, PhaseDone{.phase = Phase::kRebuild, .code = StatusCode::kInternal, .text = "no card"});
  }
  EXPECT_EQ(bench.Killed(), std::set<int>{2});
}

TEST(Controller, TriesAgainAfterAnEchoWithoutBlamingAnyone) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(5);
  bench.hold = Phase::kRebuild;
  bench.Say(0, FaultReport{.kind = FaultKind::kException});
  bench.Say(1, PhaseDone{.phase = Phase::kRebuild, .code = StatusCode::kCommFailure});
  bench.hold.reset();
  bench.Pass(100ms);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_TRUE(bench.Killed().empty());
}

TEST(Controller, ASourceThatFailsToSendStaysAnOffer) {
  Bench bench(Bench::QuickPolicy(2));
  bench.Run();
  bench.CommitAll(5);
  bench.hold = Phase::kRepair;
  bench.Exit(1);
  ASSERT_EQ(bench.core.phase(), Phase::kRepair);
  bench.hold.reset();
  bench.Say(0, PhaseDone{.phase = Phase::kRepair, .code = StatusCode::kInternal});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_FALSE(bench.Ended());
}

TEST(Controller, CountsNoReportOfAPredecessor) {
  // Rank 1 answers LOCK and dies; its replacement is ready before the others have answered. The dead process's word
  // must not stand for a shard that nobody holds.
  Bench bench(Bench::QuickPolicy(2));
  bench.Run();
  bench.CommitAll(5);
  bench.hold = Phase::kLock;
  bench.Say(0, FaultReport{.kind = FaultKind::kMemoryHigh});
  bench.Say(1, LockReply{GateState::kCommitted, Step(5)});
  bench.Exit(1);
  ASSERT_EQ(bench.core.phase(), Phase::kLock);
  bench.hold.reset();
  bench.Say(0, LockReply{GateState::kCommitted, Step(5)});
  ASSERT_FALSE(bench.Sent<StopOrder>().empty());
  EXPECT_FALSE(bench.Sent<StopOrder>().back().second.step_exists);
}

}  // namespace
}  // namespace kintsugi::core
