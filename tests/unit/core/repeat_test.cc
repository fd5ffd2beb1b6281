// What comes back at the same step whenever it is run again, and what it is told to be; limits that are learnt.
#include <gtest/gtest.h>

#include "runtime/core/hang_detector.h"
#include "runtime/core/phase_times.h"
#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

Policy SavingPolicy() {
  Policy policy = Bench::QuickPolicy(4);
  policy.save_directory = "saves";
  return policy;
}

void FailAt(Bench& bench, int rank, uint64_t step, const std::string& text = "label out of range") {
  bench.CommitAll(step - 1);
  bench.Say(rank, FaultReport{.kind = FaultKind::kException, .text = text, .step = Step(step)});
}

bool Says(const std::optional<RunEnded>& ended, const std::string& words) {
  if (ended && ended->text.find(words) != std::string::npos) return true;
  ADD_FAILURE() << "no '" << words << "' in: " << (ended ? ended->text : "(the run goes on)");
  return false;
}

TEST(FailureLoop, TheThirdAtOneStepSavesAndEndsWithRankStepAndText) {
  Bench bench(SavingPolicy());
  bench.Run();
  FailAt(bench, 2, 7);
  FailAt(bench, 2, 7);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  FailAt(bench, 2, 7);
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kDump);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed) << "75 would have a scheduler try for ever";
  Says(bench.Ended(), "rank 2 failed 3 times at step 7");
  Says(bench.Ended(), "label out of range");
  Says(bench.Ended(), "saved step 6");
}

// Behind the last step no other is begun: the script itself leaves there, and would again.
TEST(FailureLoop, WhoLeavesByItselfBehindTheLastStepIsNotTakenBackForEver) {
  Bench bench(SavingPolicy());
  bench.Run();
  bench.CommitAll(7);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(bench.core.phase(), Phase::kRunning) << "after " << i;
    bench.Say(2, Beat{.count = 1, .place = {.step = 7}});
    bench.standing[2] = {GateState::kCommitted, {}, false};
    bench.Feed(ProcessExited{.rank = Rank(2),
                             .incarnation = bench.member(2).incarnation,
                             .cause = "exited with code 0",
                             .since = std::nullopt,
                             .left = true});
  }
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  Says(bench.Ended(), "rank 2 died 3 times at step 7 (last: exited with code 0)");
}

TEST(FailureLoop, ProgressInBetweenForgives) {
  Bench bench(SavingPolicy());
  bench.Run();
  for (uint64_t step = 5; step <= 12; ++step) FailAt(bench, 2, step);
  for (int i = 0; i < 2; ++i) FailAt(bench, 2, 13);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(FailureLoop, BesideALostProcessAnExceptionIsItsEcho) {
  Bench bench(SavingPolicy());
  bench.Run();
  for (int i = 0; i < 3; ++i) {
    bench.CommitAll(6);
    bench.hold = Phase::kLock;
    bench.Say(2, FaultReport{.kind = FaultKind::kException, .text = "connection reset", .step = Step(7)});
    bench.hold.reset();
    bench.Exit(1);  // of other causes each time: it computes nothing that the core has seen
    bench.Pass(20ms);
  }
  EXPECT_FALSE(bench.Ended()) << bench.Ended()->text;
}

TEST(FailureLoop, OfOneRankAfterTheOtherEndsToo) {
  Bench bench(SavingPolicy());
  bench.Run();
  for (int i = 0; i < 9 && !bench.Ended(); ++i) FailAt(bench, i % 4, 7);
  Says(bench.Ended(), "at step 7");
}

TEST(FailureLoop, OfCollectivesWithNobodyToBlameEndsToo) {
  Bench bench(SavingPolicy());
  bench.Run();
  for (int i = 0; i < 9 && !bench.Ended(); ++i) {
    bench.CommitAll(6);
    bench.Say(i % 4, FaultReport{.kind = FaultKind::kCommError, .text = "broken pipe", .step = Step(7)});
    bench.Pass(2s);
  }
  Says(bench.Ended(), "a collective failed 9 times at step 7");
  Says(bench.Ended(), "broken pipe");
}

// Says so for as long as ROLLBACK is tried.
int FailRollback(Bench& bench, int rank, StatusCode code) {
  bench.CommitAll(6);
  bench.hold = Phase::kRollback;
  bench.Say(0, FaultReport{.kind = FaultKind::kException, .text = "boom", .step = Step(7)});
  int times = 0;
  for (; times < 40 && !bench.Ended() && bench.core.phase() == Phase::kRollback; ++times)
    bench.Say(rank, PhaseDone{.phase = Phase::kRollback, .code = code, .text = "no such table"});
  return times;
}

TEST(FailureLoop, AHandlerThatAlwaysThrowsIsTriedInOneMoreProcessAndNamedAtTheEnd) {
  Bench bench(SavingPolicy());
  bench.Run();
  EXPECT_EQ(FailRollback(bench, 2, StatusCode::kInternal), 4);
  EXPECT_EQ(bench.Killed(), std::set<int>{2});
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kDump);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed) << "75 would have a scheduler try for ever";
  Says(bench.Ended(), "the rollback handler of rank 2 failed 4 times (last: no such table)");
  Says(bench.Ended(), "saved step 6");
}

TEST(FailureLoop, AHandlerThatAlwaysThrowsWithoutReplacementsIsTriedThreeTimes) {
  Policy policy = SavingPolicy();
  policy.max_respawns = 0;
  Bench bench(policy);
  bench.Run();
  EXPECT_EQ(FailRollback(bench, 2, StatusCode::kInternal), 3);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  Says(bench.Ended(), "the rollback handler of rank 2 failed 3 times (last: no such table)");
}

// `others_say`: those that wait for it in their own handlers see their limit before the controller does.
void HangInRollback(bool others_say) {
  Bench bench(SavingPolicy());
  bench.Run();
  bench.CommitAll(6);
  bench.hold = Phase::kRollback;
  bench.Say(0, FaultReport{.kind = FaultKind::kException, .text = "boom", .step = Step(7)});
  int times = 0;
  for (; times < 20 && !bench.Ended(); ++times) {
    ASSERT_EQ(bench.core.phase(), Phase::kRollback);
    bench.mute = {2};
    for (int r : {0, 1, 3})
      if (others_say)
        bench.Say(r, PhaseDone{.phase = Phase::kRollback, .code = StatusCode::kDeadlineExceeded, .text = "waited"});
    for (int i = 0; i < 100 && bench.core.phase() == Phase::kRollback; ++i) bench.Pass(500ms);
    bench.Say(2, LockReply{GateState::kCommitted, Step(6), true});
    ASSERT_EQ(bench.core.phase(), Phase::kStop);
    bench.mute.clear();
    bench.Say(2, FaultReport{.kind = FaultKind::kStalled, .text = "its thread did not come out of its step"});
  }
  EXPECT_EQ(times, 4);
  EXPECT_EQ(bench.Killed(), std::set<int>{2});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed) << bench.Ended()->text;
  Says(bench.Ended(),
       "the rollback handler of rank 2 failed 4 times (last: it does not return: its thread did not come out");
  Says(bench.Ended(), "saved step 6");
}

TEST(FailureLoop, AHandlerThatAlwaysHangsIsNamedAtTheEndToo) {
  for (const bool others_say : {false, true}) ASSERT_NO_FATAL_FAILURE(HangInRollback(others_say)) << others_say;
}

TEST(FailureLoop, AHandlerWhoseDiskOrPeerFailsMayDoBetterElsewhere) {
  Policy policy = SavingPolicy();
  policy.max_respawns = 2;
  Bench bench(policy);
  bench.Run();
  FailRollback(bench, 2, StatusCode::kUnavailable);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable) << bench.Ended()->text;
}

TEST(FailureLoop, DamageAtOneStepAgainAndAgainIsGivenANewProcess) {
  Bench bench(SavingPolicy());
  bench.Run();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(bench.Killed().empty());
    bench.CommitAll(6);
    bench.Say(3, FaultReport{.kind = FaultKind::kMemoryHigh, .text = "double bit error", .step = Step(7)});
  }
  EXPECT_EQ(bench.Killed(), std::set<int>{3});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(LastWords, NameTheFirstCause) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.hold = Phase::kClean;
  bench.CommitAll(6);
  bench.Say(1, FaultReport{.kind = FaultKind::kMemoryHigh, .text = "double bit error", .step = Step(7)});
  bench.hold.reset();
  bench.replacements_come = false;
  bench.standing[3] = {GateState::kTorn, Step(7), false};
  bench.Exit(3);
  ASSERT_TRUE(bench.Ended());
  Says(bench.Ended(), "rank 1");
  Says(bench.Ended(), "double bit error; no rung of the ladder holds");
}

TEST(Attempts, EachIsToldWithWhatItHadChosen) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(6);
  bench.hold = Phase::kRepair;
  bench.Say(1, FaultReport{.kind = FaultKind::kMemoryLow, .text = "a page", .damaged_keys = {"w"}, .step = Step(7)});
  ASSERT_EQ(bench.core.phase(), Phase::kRepair);
  bench.hold.reset();
  bench.Say(1, PhaseDone{Phase::kRepair, StatusCode::kInternal, "no such tensor", 0, {}});
  const IncidentRecord record = bench.All<IncidentClosed>().at(0).record;
  EXPECT_EQ(record.rung, Rung::kRebuild);
  ASSERT_EQ(record.earlier.size(), 1u);
  EXPECT_EQ(record.earlier[0].attempt, 1);
  EXPECT_EQ(record.earlier[0].rung, Rung::kPatch);
  EXPECT_NE(record.earlier[0].ended_by.find("no such tensor"), std::string::npos);
  const auto reasons = ReasonsOf(record);
  EXPECT_EQ(reasons.front().rung, Rung::kPatch);
  EXPECT_NE(reasons.front().text.find("no such tensor"), std::string::npos);
}

TEST(Orders, NameWhoBrokeWhoIsNewAndTheRung) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  for (Phase phase : {Phase::kRebuild, Phase::kRollback}) {
    EXPECT_TRUE(bench.Orders(phase, 0).back().fault_ranks.empty()) << "a start is no incident";
    EXPECT_TRUE(bench.Orders(phase, 0).back().replaced_ranks.empty());
  }
  bench.CommitAll(6);
  bench.Exit(1);
  EXPECT_EQ(bench.Sent<StopOrder>().back().second.fault_ranks, std::vector<Rank>{Rank(1)});
  for (Phase phase : {Phase::kClean, Phase::kRebuild, Phase::kRepair, Phase::kVerify, Phase::kRollback}) {
    const PhaseOrder order = bench.Orders(phase, 0).back();
    EXPECT_EQ(order.fault_ranks, std::vector<Rank>{Rank(1)}) << PhaseName(phase);
    EXPECT_EQ(order.rung, Rung::kRespawn) << PhaseName(phase);
    if (phase != Phase::kClean) {
      EXPECT_EQ(order.replaced_ranks, std::vector<Rank>{Rank(1)}) << PhaseName(phase);
    }
  }
}

TEST(Stop, WhoseAgentSaysThatItIsLateIsGivenUpAtOnce) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(6);
  bench.mute = {2};
  bench.Say(0, FaultReport{.kind = FaultKind::kException, .step = Step(7)});
  bench.Say(2, LockReply{GateState::kCommitted, Step(6), true});
  ASSERT_EQ(bench.core.phase(), Phase::kStop);
  bench.mute.clear();
  bench.Say(2, FaultReport{.kind = FaultKind::kStalled, .text = "the stop handler has not returned within 10000 ms"});
  EXPECT_EQ(bench.Killed(), std::set<int>{2});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

// ---- suspect updates
// -------------------------------------------------------------------------------------------------

TEST(Suspect, AnUpdateThatMayHoldDamageIsGoneBackBehind) {
  Policy policy = SavingPolicy();
  Bench bench(policy);
  bench.Run();
  bench.Feed(FromAgent{{bench.core.term(), bench.core.generation(), Rank(0), Incarnation(1)}, Published{Step(3), "a"}});
  bench.Feed(FromAgent{{bench.core.term(), bench.core.generation(), Rank(0), Incarnation(1)}, Published{Step(5), "b"}});
  bench.CommitAll(6);
  FaultReport report{.kind = FaultKind::kMemoryHigh, .text = "double bit error", .step = Step(7)};
  report.suspect_from = Step(5);
  bench.Say(1, report);
  const IncidentRecord record = bench.All<IncidentClosed>().at(0).record;
  EXPECT_EQ(record.rung, Rung::kReload);
  EXPECT_EQ(record.step, Step(3)) << "the checkpoint of step 5 holds the damage too";
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(Suspect, WithNothingOlderTheRunEndsAndSavesNothing) {
  Bench bench(SavingPolicy());
  bench.Run();
  bench.CommitAll(6);
  FaultReport report{.kind = FaultKind::kMemoryHigh, .text = "double bit error", .step = Step(7)};
  report.suspect_from = Step(6);
  bench.Say(1, report);
  ASSERT_TRUE(bench.Ended());
  EXPECT_TRUE(bench.Orders(Phase::kDump, 0).empty());
  Says(bench.Ended(), "double bit error");
}

TEST(Suspect, AnUpdateThatIsAbandonedAnywayCostsNothing) {
  Bench bench(SavingPolicy());
  bench.Run();
  bench.CommitAll(6);
  FaultReport report{.kind = FaultKind::kMemoryHigh, .text = "double bit error", .step = Step(7)};
  report.suspect_from = Step(7);
  bench.Say(1, report);
  EXPECT_EQ(bench.All<IncidentClosed>().at(0).record.rung, Rung::kRebuild);
}

// ---- resume by the trainer's loader
// ------------------------------------------------------------------------------------

Policy ByTrainer() {
  Policy policy = Bench::QuickPolicy(4);
  policy.resume_directory = "their-own";
  policy.resume_by_trainer = true;
  return policy;
}

TEST(TrainersLoader, SaysWhereTheRunGoesOn) {
  Bench bench(ByTrainer());
  bench.hold = Phase::kRepair;
  bench.Run();
  ASSERT_EQ(bench.core.phase(), Phase::kRepair);
  EXPECT_EQ(bench.Orders(Phase::kRepair, 0).back().directory, "their-own");
  EXPECT_EQ(bench.Orders(Phase::kRepair, 0).back().rung, Rung::kReload);
  for (int r = 0; r < 4; ++r) bench.Say(r, PhaseDone{.phase = Phase::kRepair, .loaded = Step(40)});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.Sent<ResumeOrder>().back().second.step, Step(40));
}

TEST(TrainersLoader, RanksThatDisagreeDoNotStart) {
  Bench bench(ByTrainer());
  bench.hold = Phase::kRepair;
  bench.Run();
  for (int r = 0; r < 4; ++r) bench.Say(r, PhaseDone{.phase = Phase::kRepair, .loaded = Step(r == 2 ? 39 : 40)});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitStartup);
  Says(bench.Ended(), "rank 0 loaded step 40, rank 2 step 39");
}

TEST(TrainersLoader, ThatSaysNoStepDoesNotStart) {
  Bench bench(ByTrainer());
  bench.Run();
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitStartup);
  Says(bench.Ended(), "did not say which step it loaded");
}

// ---- limits that are learnt
// ---------------------------------------------------------------------------------------------

Policy PatientPolicy() {
  Policy policy = Bench::QuickPolicy(4);
  policy.step_timeout = 60s;
  policy.hang_least = 2s;
  return policy;
}

TEST(PhaseTimes, AreLearntFromTheLongest) {
  PhaseTimes times(10, 5s);
  EXPECT_EQ(times.Limit(Phase::kRebuild, 60s), 60s) << "never seen";
  times.Note(Phase::kRebuild, 100ms);
  EXPECT_EQ(times.Limit(Phase::kRebuild, 60s), 5s);
  times.Note(Phase::kRebuild, 2s);
  times.Note(Phase::kRebuild, 1s);
  EXPECT_EQ(times.Limit(Phase::kRebuild, 60s), 20s);
  times.Note(Phase::kRebuild, 30s);
  EXPECT_EQ(times.Limit(Phase::kRebuild, 60s), 60s);
  EXPECT_EQ(times.Limit(Phase::kClean, 60s), 60s) << "another phase";
  PhaseTimes off(0, 5s);
  off.Note(Phase::kRebuild, 1s);
  EXPECT_EQ(off.Limit(Phase::kRebuild, 60s), 60s);
}

TEST(PhaseTimes, TheStartTeachesTheFirstIncident) {
  Bench bench(PatientPolicy());
  bench.Run();
  bench.CommitAll(6);
  bench.Say(0, FaultReport{.kind = FaultKind::kException, .step = Step(7)});
  EXPECT_EQ(bench.Orders(Phase::kClean, 0).back().limit, 60s) << "nobody has seen one yet";
  EXPECT_EQ(bench.Orders(Phase::kRebuild, 0).back().limit, 10s);
  EXPECT_EQ(bench.Orders(Phase::kRollback, 0).back().limit, 10s);
  bench.CommitAll(9);
  bench.Say(0, FaultReport{.kind = FaultKind::kException, .step = Step(10)});
  EXPECT_EQ(bench.Orders(Phase::kClean, 0).back().limit, 10s);
}

TEST(PhaseTimes, WhoHangsInTheFirstCleanIsFoundByThoseWhoAreDone) {
  Bench bench(PatientPolicy());
  bench.Run();
  bench.CommitAll(6);
  bench.hold = Phase::kClean;
  bench.Say(0, FaultReport{.kind = FaultKind::kException, .step = Step(7)});
  ASSERT_EQ(bench.core.phase(), Phase::kClean);
  bench.hold = Phase::kStop;
  bench.Pass(100ms);
  for (const int rank : {0, 1, 2}) bench.Say(rank, PhaseDone{.phase = Phase::kClean});
  bench.Pass(15s);
  ASSERT_EQ(bench.core.phase(), Phase::kStop) << "its stop handler may free it";
  EXPECT_TRUE(bench.Killed().empty());
  for (const int rank : {0, 1, 2}) bench.Say(rank, Parked{GateState::kCommitted, Step(6)});
  bench.hold.reset();
  bench.Pass(25s);  // the stop handler's limit, and as long as CLEAN had
  EXPECT_EQ(bench.Killed(), std::set<int>{3});
}

}  // namespace
}  // namespace kintsugi::core
