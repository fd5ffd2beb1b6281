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
    bench.mute = {1};
    // Everybody else answers.
    for (int r : {0, 2, 3}) {
      if (phase == Phase::kLock) bench.Say(r, LockReply{GateState::kCommitted, Step(5)});
      else if (phase == Phase::kStop) bench.Say(r, Parked{GateState::kCommitted, Step(5)});
      else bench.Say(r, PhaseDone{.phase = phase, .digests = {{0, 1}}});
    }
    ASSERT_EQ(bench.core.phase(), phase);
    for (int seconds = 0; seconds < 50 && bench.Killed().empty(); ++seconds) bench.Pass(1s);
    EXPECT_EQ(bench.Killed(), std::set<int>{1}) << PhaseName(phase);
    bench.mute.clear();
    bench.JoinAndReady(1);
    EXPECT_EQ(bench.core.phase(), Phase::kRunning) << PhaseName(phase);
  }
}

// Two that are late together, as in a collective of their handlers: STOP frees them, and nobody is given up for it.
TEST(Controller, StopsWhoIsLateInAHandlerFirst) {
  for (Phase phase : {Phase::kClean, Phase::kRebuild, Phase::kVerify, Phase::kRollback}) {
    Bench bench(Bench::QuickPolicy(4));
    bench.Run();
    bench.CommitAll(5);
    bench.hold = phase;
    bench.Say(3, FaultReport{.kind = FaultKind::kException});
    bench.hold.reset();
    for (int r : {0, 2}) bench.Say(r, PhaseDone{.phase = phase, .digests = {{0, 1}}});
    ASSERT_EQ(bench.core.phase(), phase);
    bench.Pass(50s);
    EXPECT_TRUE(bench.Killed().empty()) << PhaseName(phase);
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

TEST(Controller, KeepsWhatHandlersSayOfAnIncidentEachSentenceOnce) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(5);
  bench.hold = Phase::kRebuild;
  bench.Say(0, FaultReport{.kind = FaultKind::kException});
  for (int r : {0, 1, 2}) bench.Say(r, PhaseDone{.phase = Phase::kRebuild, .text = "models were reset"});
  bench.hold.reset();
  bench.Say(3, PhaseDone{.phase = Phase::kRebuild, .text = "models were made anew"});
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  const IncidentRecord record = bench.All<IncidentClosed>().back().record;
  std::vector<std::string> said;
  for (const RungReason& reason : ReasonsOf(record))
    if (reason.rung == record.rung) said.push_back(reason.text);
  ASSERT_EQ(said.size(), 3u);  // behind why the rung was chosen
  EXPECT_EQ(said[1], "models were reset");
  EXPECT_EQ(said[2], "models were made anew");
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

TEST(Controller, NobodyIsKilledForWaitingForAnother) {
  // Rank 2's handler hangs; the others wait for it, run into their limit and say so.
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(5);
  bench.hold = Phase::kRebuild;
  bench.Say(0, FaultReport{.kind = FaultKind::kException});
  for (int round = 1; round <= 3; ++round) {
    ASSERT_EQ(bench.core.phase(), Phase::kRebuild) << round;
    ASSERT_TRUE(bench.Killed().empty());
    bench.Pass(4s);
    for (int r : {0, 1, 3}) bench.Say(r, PhaseDone{.phase = Phase::kRebuild, .code = StatusCode::kDeadlineExceeded});
    bench.Pass(100ms);
  }
  EXPECT_EQ(bench.Killed(), std::set<int>{2});
}

TEST(Controller, WhereAllHangTheyAreCancelledFirst) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(5);
  bench.hold = Phase::kRebuild;
  bench.Say(0, FaultReport{.kind = FaultKind::kException});
  const Generation before = bench.core.generation();
  bench.Pass(6s);
  EXPECT_GT(bench.core.generation(), before);
  EXPECT_TRUE(bench.Killed().empty());
  bench.hold.reset();
  bench.Pass(6s);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

// ---- lost connections ----------------------------------------------------------------------------------------------

TEST(Controller, AHealedGapCostsNoGeneration) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  const Generation before = bench.core.generation();
  bench.Close(2);
  EXPECT_EQ(bench.core.phase(), Phase::kConfirm);
  bench.Pass(500ms);
  bench.Rejoin(2);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.core.generation(), before);
  EXPECT_TRUE(bench.Sent<LockOrder>().empty());
  EXPECT_EQ(bench.All<IncidentClosed>().at(0).record.rung, Rung::kResume);
}

TEST(Controller, NoBeatCanComeOverALostConnection) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  const Duration silence = bench.core.policy().silence;
  bench.silent = {2};
  bench.Pass(silence * 4 / 10);  // the last beat was this long ago when the connection went
  bench.Close(2);
  bench.Pass(silence * 8 / 10);
  EXPECT_TRUE(bench.Killed().empty()) << "silent for longer than the limit, but not connected either";
  bench.Rejoin(2);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.All<IncidentClosed>().at(0).record.rung, Rung::kResume);
  bench.Pass(silence + 20ms);
  EXPECT_EQ(bench.Killed(), std::set<int>{2}) << "back, and silent for the whole limit";
}

TEST(Controller, AStormOfLostConnectionsIsWaitedForWhileItComesBack) {
  Bench bench(Bench::QuickPolicy(8));
  bench.Run();
  const Generation before = bench.core.generation();
  const Duration window = bench.core.policy().ConfirmWindow();
  for (int rank = 0; rank < 8; ++rank) bench.Close(rank);
  for (int rank = 0; rank < 4; ++rank) {  // one after the other, three windows in all
    bench.Pass(window * 6 / 10);
    bench.Rejoin(rank);
  }
  EXPECT_EQ(bench.core.phase(), Phase::kConfirm);
  for (int rank = 4; rank < 8; ++rank) bench.Rejoin(rank);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.core.generation(), before);
  EXPECT_TRUE(bench.Killed().empty());
}

TEST(Controller, AStormIsWaitedForOnlyWhileItComesBack) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  const Duration window = bench.core.policy().ConfirmWindow();
  for (int rank = 0; rank < 4; ++rank) bench.Close(rank);
  bench.Pass(window / 2);
  for (int rank = 0; rank < 3; ++rank) bench.Rejoin(rank);
  bench.Pass(window - 20ms);
  EXPECT_TRUE(bench.Killed().empty());
  bench.Pass(40ms);
  EXPECT_EQ(bench.Killed(), std::set<int>{3});
}

TEST(Controller, ARankThatComesAndGoesDoesNotKeepALostOneForEver) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  const Duration window = bench.core.policy().ConfirmWindow();
  bench.Close(3);
  for (int times = 0; times < 20 && bench.Killed().empty(); ++times) {
    bench.Close(0);
    bench.Pass(window / 4);
    bench.Rejoin(0);
    EXPECT_LE(times, 16) << "four windows are over";
  }
  EXPECT_EQ(bench.Killed(), std::set<int>{3});
}

TEST(Controller, AGapDoesNotHealWhereACollectiveHasFailed) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(5);
  bench.Close(2);
  bench.Say(0, FaultReport{.kind = FaultKind::kCommError});
  bench.Rejoin(2);
  EXPECT_EQ(bench.core.phase(), Phase::kConfirm) << "rank 0 is parked and must be told to go on";
  bench.Pass(2s);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kRetry);
  EXPECT_TRUE(bench.Killed().empty());
}

TEST(Controller, AConnectionThatStaysAwayCostsItsRankAlone) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(5);
  bench.Close(2);
  bench.Pass(2s);
  EXPECT_EQ(bench.Killed(), std::set<int>{2});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.attempts, 1);
}

TEST(Controller, RepeatsTheOrderThatWasLostWithTheConnection) {
  for (Phase phase : {Phase::kLock, Phase::kStop, Phase::kRebuild, Phase::kRollback, Phase::kRunning}) {
    Bench bench(Bench::QuickPolicy(4));
    bench.Run();
    bench.CommitAll(5);
    bench.hold = phase;
    bench.Say(3, FaultReport{.kind = FaultKind::kException});
    ASSERT_EQ(bench.core.phase(), phase);
    bench.Close(1);
    bench.hold.reset();
    for (int r : {0, 2, 3}) bench.Rejoin(r);  // all but rank 1 lost theirs too, and had it repeated
    ASSERT_EQ(bench.core.phase(), phase == Phase::kRunning ? Phase::kConfirm : phase);
    bench.Rejoin(1);
    EXPECT_EQ(bench.core.phase(), Phase::kRunning) << PhaseName(phase);
    bench.Pass(10s);
    EXPECT_TRUE(bench.Killed().empty()) << PhaseName(phase);
  }
}

TEST(Controller, AGapWhileTheRunStartsChangesNothing) {
  Bench bench(Bench::QuickPolicy(2));
  bench.mute = {1};
  bench.Run();
  ASSERT_EQ(bench.core.phase(), Phase::kAdmit);
  bench.Close(0);
  EXPECT_EQ(bench.core.phase(), Phase::kAdmit);
  bench.Rejoin(0);
  bench.mute.clear();
  bench.JoinAndReady(1);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.core.incidents(), 0u);
}

TEST(Controller, ARankThatDoesNotResumeIsGivenUp) {
  Bench bench(Bench::QuickPolicy(4));
  bench.hold = Phase::kRunning;
  bench.Run();
  for (int r : {0, 1, 3}) bench.Say(r, Resumed{});
  bench.Pass(5s);
  EXPECT_EQ(bench.Killed(), std::set<int>{2});
}

TEST(Controller, ARankWithNothingLeftToDoHasResumed) {
  Bench bench(Bench::QuickPolicy(2));
  bench.Run();
  bench.CommitAll(9);
  bench.hold = Phase::kRunning;
  bench.Say(0, FaultReport{.kind = FaultKind::kException});
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  for (int r = 0; r < 2; ++r) bench.Say(r, Finished{Step(9)});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitSuccess);
  EXPECT_TRUE(bench.All<IncidentClosed>().at(0).record.resumed_at);
}

// ---- faults --------------------------------------------------------------------------------------------------------

TEST(Controller, ACommunicationErrorBreaksNobody) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(5);
  bench.Say(0, FaultReport{.kind = FaultKind::kCommError});
  EXPECT_EQ(bench.core.phase(), Phase::kConfirm);
  bench.Pass(2s);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_TRUE(bench.Killed().empty());
  EXPECT_TRUE(bench.Orders(Phase::kRepair, 0).empty());
}

TEST(Controller, TheCauseReplacesTheEchoThatWasSeenFirst) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(5);
  bench.Say(0, FaultReport{.kind = FaultKind::kCommError});
  bench.Exit(3);
  const auto record = bench.All<IncidentClosed>().at(0).record;
  EXPECT_EQ(record.signal, FaultKind::kProcessExit);
  EXPECT_EQ(record.ranks, std::vector<Rank>{Rank(3)});
}

TEST(Controller, AnOldGenerationsTroubleIsNoNewFault) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(5);
  bench.Exit(3);
  const Generation after = bench.core.generation();
  bench.SayLate(0, FaultReport{.kind = FaultKind::kException});
  bench.SayLate(0, FaultReport{.kind = FaultKind::kCommError});
  EXPECT_EQ(bench.core.generation(), after);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  bench.SayLate(0, FaultReport{.kind = FaultKind::kMemoryHigh});
  EXPECT_GT(bench.core.generation(), after) << "damaged memory is news at any time";
}

TEST(Controller, RanksFoundSilentTogetherCostOneAttempt) {
  Bench bench(Bench::QuickPolicy(8));
  bench.Run();
  bench.CommitAll(5);
  bench.silent = {1, 2, 4};
  bench.replacements_come = false;
  bench.Pass(2s);
  EXPECT_EQ(bench.Killed(), (std::set<int>{1, 2, 4}));
  EXPECT_EQ(bench.core.generation(), Generation(2));
}

TEST(Controller, AFaultInAnyPhaseBeginsANewAttempt) {
  for (Phase phase : {Phase::kLock, Phase::kStop, Phase::kClean, Phase::kRebuild, Phase::kRepair, Phase::kVerify,
                      Phase::kRollback}) {
    Bench bench(Bench::QuickPolicy(4));
    bench.Run();
    bench.CommitAll(5);
    bench.hold = phase;
    bench.Exit(1);
    ASSERT_EQ(bench.core.phase(), phase);
    bench.hold.reset();
    bench.Exit(0);
    EXPECT_EQ(bench.core.phase(), Phase::kRunning) << PhaseName(phase);
    const auto record = bench.All<IncidentClosed>().back().record;
    EXPECT_EQ(record.attempts, 2);
    EXPECT_EQ(record.ranks.size(), 2u);
    EXPECT_EQ(bench.Orders(Phase::kRepair, 2).back().moves.size(), 2u) << PhaseName(phase);
  }
}

TEST(Controller, PatchesOnlyWhatWasNotComputedWith) {
  const auto rung = [](GateState of_rank_1, GateState of_others) {
    Bench bench(Bench::QuickPolicy(4));
    bench.Run();
    for (int r = 0; r < 4; ++r) bench.standing[static_cast<size_t>(r)] = {r == 1 ? of_rank_1 : of_others, Step(6), true};
    bench.Say(1, FaultReport{.kind = FaultKind::kMemoryLow, .damaged_keys = {"w"}});
    return bench.All<IncidentClosed>().at(0).record.rung;
  };
  EXPECT_EQ(rung(GateState::kAtGate, GateState::kAtGate), Rung::kPatch) << "the update is abandoned";
  EXPECT_EQ(rung(GateState::kAtGate, GateState::kCommitted), Rung::kRebuild) << "it went on with damaged tensors";
  EXPECT_EQ(rung(GateState::kUpdating, GateState::kAtGate), Rung::kRebuild);
  EXPECT_EQ(rung(GateState::kCommitted, GateState::kCommitted), Rung::kPatch);
}

TEST(Controller, CarriesTenThousandRanksThroughAnIncident) {
  Policy policy = Bench::QuickPolicy(10'000);
  Bench bench(policy);
  bench.Run();
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  bench.CommitAll(5);
  bench.Exit(4321);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.All<IncidentClosed>().at(0).record.rung, Rung::kRespawn);
}

// ---- replacements --------------------------------------------------------------------------------------------------

}  // namespace
}  // namespace kintsugi::core
