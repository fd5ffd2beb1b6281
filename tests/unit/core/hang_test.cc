// Hangs inside the controller: who is asked, replaced and blamed; how a run ends by itself; and crash loops.
#include <gtest/gtest.h>

#include "tests/unit/core/bench.h"
#include "tests/unit/core/places.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

void Steps(Bench& bench, uint64_t from, uint64_t to) {
  for (uint64_t step = from; step <= to; ++step) {
    for (int r = 0; r < 4; ++r) bench.places[r] = In(step, TrainPhase::kForward);
    bench.Pass(100ms);
  }
}

// Running, with steps of 100 ms learnt; rank 2 stands in the forward pass of step 9, the others wait for it.
void LetRankTwoLag(Bench& bench) {
  Steps(bench, 1, 9);
  bench.CommitAll(8);
  for (int r : {0, 1, 3}) bench.places[r] = In(9, TrainPhase::kGradientSync);
}

Policy HangPolicy() {
  Policy policy = Bench::QuickPolicy(4);
  policy.hang_least = 2s;
  return policy;
}

TEST(Hang, ARankThatComesOutOfItsStepGoesOn) {
  Bench bench(HangPolicy());
  bench.Run();
  LetRankTwoLag(bench);
  bench.Pass(1900ms);
  EXPECT_EQ(bench.core.incidents(), 0u);
  bench.Pass(300ms);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  const IncidentRecord record = bench.All<IncidentClosed>().at(0).record;
  EXPECT_EQ(record.signal, FaultKind::kHang);
  EXPECT_EQ(record.ranks, std::vector<Rank>{Rank(2)});
  EXPECT_EQ(record.rung, Rung::kRetry);
  EXPECT_TRUE(bench.Killed().empty());
}

TEST(Hang, AnExitOfARankThatThereIsNotAsksNobody) {
  Bench bench(HangPolicy());
  bench.Run();
  bench.Feed(ProcessExited{Rank(4), Incarnation(1), "killed by SIGKILL", std::nullopt});
  bench.Feed(ProcessExited{Rank(-1), Incarnation(1), "killed by SIGKILL", std::nullopt});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

// All within the `at`-th sum of the world; a rank in `missing` has not come.
RankMarks MarksAt(uint64_t at, bool missing, uint64_t size = 8) {
  RankMarks marks;
  GroupMarks group{"world", {Rank(0), Rank(1), Rank(2), Rank(3)}, missing ? at - 1 : at, {}};
  CollectiveMark mark;
  mark.number = mark.order = group.entered;
  mark.kind = CollectiveKind::kAllReduce;
  mark.size = size;
  mark.end = missing ? CollectiveEnd::kDone : CollectiveEnd::kOpen;
  mark.entered = 900ms;
  group.newest.push_back(mark);
  marks.groups.push_back(group);
  return marks;
}

TEST(Hang, IsExplainedLongBeforeItIsOne) {
  Bench bench(HangPolicy());
  bench.Run();
  LetRankTwoLag(bench);
  for (int r = 0; r < 4; ++r) bench.marks[r] = MarksAt(50, r == 2);
  bench.marks[2].stand.at = "loader.py:88 (fetch)";
  bench.Pass(900ms);
  EXPECT_TRUE(bench.All<HangExplained>().empty());
  EXPECT_TRUE(bench.Sent<AskMarks>().empty()) << "nothing is sent before somebody waits";
  bench.Pass(300ms);
  ASSERT_EQ(bench.All<HangExplained>().size(), 1u);
  const Blame blame = bench.All<HangExplained>()[0].blame;
  EXPECT_EQ(blame.kind, BlameKind::kMissing);
  EXPECT_EQ(blame.ranks, std::vector<Rank>{Rank(2)});
  EXPECT_EQ(bench.core.incidents(), 0u) << "nothing is done about it yet";
}

// By their places nobody can be told from the others: all stand in one phase.
TEST(Hang, IsThatRanksWhomTheOthersAreWaitingFor) {
  Bench bench(HangPolicy());
  bench.Run();
  Steps(bench, 1, 9);
  bench.CommitAll(8);
  for (int r = 0; r < 4; ++r) bench.marks[r] = MarksAt(50, r == 3);
  bench.Pass(2300ms);
  ASSERT_EQ(bench.All<IncidentClosed>().size(), 1u);
  const IncidentRecord record = bench.All<IncidentClosed>()[0].record;
  EXPECT_EQ(record.ranks, std::vector<Rank>{Rank(3)});
  EXPECT_NE(record.cause.find("rank 3 has not come to all_reduce 50"), std::string::npos) << record.cause;
}

TEST(Hang, AProgramThatGoesAnotherWayOnOneRankIsAnExceptionOfIts) {
  Bench bench(HangPolicy());
  bench.Run();
  Steps(bench, 1, 9);
  bench.CommitAll(8);
  for (int r = 0; r < 4; ++r) bench.marks[r] = MarksAt(50, false, r == 1 ? 9 : 8);
  bench.Pass(2300ms);
  ASSERT_EQ(bench.All<IncidentClosed>().size(), 1u);
  EXPECT_EQ(bench.All<IncidentClosed>()[0].record.signal, FaultKind::kException);
  EXPECT_EQ(bench.All<IncidentClosed>()[0].record.ranks, std::vector<Rank>{Rank(1)});
}

TEST(Hang, WhatDiffersIsLookedForWhereACollectiveFailsOrAProcessIsGone) {
  for (const bool exits : {false, true}) {
    Bench bench(HangPolicy());
    bench.Run();
    Steps(bench, 1, 9);
    bench.CommitAll(8);
    for (int r = 0; r < 4; ++r)
      if (!exits || r != 0) bench.marks[r] = MarksAt(50, false, r == 1 ? 9 : 8);
    if (exits)
      bench.Exit(0, "killed by SIGABRT");
    else
      bench.Say(0, FaultReport{.kind = FaultKind::kCommError, .text = "broken"});
    bench.Pass(1s);
    ASSERT_EQ(bench.All<HangExplained>().size(), 1u);
    EXPECT_EQ(bench.All<HangExplained>()[0].blame.kind, BlameKind::kOtherSize);
    EXPECT_EQ(bench.All<HangExplained>()[0].blame.ranks, std::vector<Rank>{Rank(1)});
  }
}

TEST(Hang, ARankThatDoesNotIsReplaced) {
  Bench bench(HangPolicy());
  bench.Run();
  LetRankTwoLag(bench);
  bench.mute = {2};
  bench.hold = std::nullopt;
  bench.Pass(2200ms);
  EXPECT_EQ(bench.core.phase(), Phase::kLock) << "its agent is muted too";
  bench.Pass(10s);
  EXPECT_EQ(bench.Killed(), std::set<int>{2});
}

TEST(Hang, IsFoundWhereEveryStepEndsWithAComparison) {
  Policy policy = HangPolicy();
  policy.verify_every = 1;
  Bench bench(policy);
  bench.Run();
  for (uint64_t step = 1; step <= 4; ++step) {
    for (int r = 0; r < 4; ++r) bench.places[r] = In(step, TrainPhase::kForward);
    bench.Pass(100ms);
    bench.CommitAll(step);
    for (int r = 0; r < 4; ++r) bench.Say(r, SavePoint{Step(step)});
  }
  for (int r = 0; r < 4; ++r) bench.places[r] = In(5, r == 1 ? TrainPhase::kForward : TrainPhase::kGradientSync);
  bench.Pass(2200ms);
  ASSERT_EQ(bench.All<IncidentClosed>().size(), 1u);
  EXPECT_EQ(bench.All<IncidentClosed>()[0].record.signal, FaultKind::kHang);
  EXPECT_EQ(bench.All<IncidentClosed>()[0].record.ranks, std::vector<Rank>{Rank(1)});
}

TEST(Hang, HangingAtTheSameStepAgainIsNotForgiven) {
  Bench bench(HangPolicy());
  bench.Run();
  LetRankTwoLag(bench);
  for (int r : {0, 1, 3}) bench.places[r] = In(9, TrainPhase::kGate);
  bench.Pass(2200ms);
  ASSERT_EQ(bench.core.incidents(), 1u);
  EXPECT_TRUE(bench.Killed().empty());
  bench.Pass(3600ms);
  EXPECT_EQ(bench.core.incidents(), 1u) << "it has more time there, now that it is known";
  bench.Pass(600ms);
  EXPECT_EQ(bench.core.incidents(), 2u);
  EXPECT_EQ(bench.Killed(), std::set<int>{2});
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kRespawn);
}

// In a pipeline a rank stands still, at an earlier place, because the one that it waits for does.
TEST(Hang, WhoMayWaitForAnotherIsAskedTwice) {
  Bench bench(HangPolicy());
  bench.Run();
  LetRankTwoLag(bench);
  bench.Pass(2200ms);
  bench.Pass(4300ms);
  ASSERT_EQ(bench.core.incidents(), 2u);
  EXPECT_TRUE(bench.Killed().empty());
  bench.Pass(4300ms);
  EXPECT_EQ(bench.Killed(), std::set<int>{2});
}

TEST(Hang, WhoeverLeftItsLoopEarlyIsToBlameAndNotThoseThatWaitForIt) {
  Bench bench(HangPolicy());
  bench.Run();
  Steps(bench, 1, 9);
  for (int i = 0; i < 3; ++i) {
    bench.CommitAll(8);
    bench.Say(1, Finished{Step(8)});
    for (int r : {0, 2, 3}) bench.places[r] = In(9, TrainPhase::kGradientSync);
    bench.Pass(2300ms);
    EXPECT_EQ(bench.core.incidents(), static_cast<uint64_t>(i) + 1);
    EXPECT_EQ(bench.All<IncidentClosed>().back().record.ranks, std::vector<Rank>{Rank(1)});
  }
  EXPECT_TRUE(bench.Killed().empty());
  ASSERT_TRUE(bench.Ended()) << "it does so again and again";
  EXPECT_NE(bench.Ended()->text.find("rank 1 failed 3 times at step 9"), std::string::npos) << bench.Ended()->text;
  EXPECT_NE(bench.Ended()->text.find("its loop ended after step 8"), std::string::npos) << bench.Ended()->text;
}

TEST(Hang, ADeadlockOfAllIsLookedAtSoonAndHasTheWholeTimeToComeOutOfItsStep) {
  Bench bench(HangPolicy());
  bench.Run();
  Steps(bench, 1, 9);
  bench.CommitAll(8);
  bench.hold = Phase::kStop;
  bench.Pass(2200ms);  // the learnt limit
  ASSERT_EQ(bench.core.phase(), Phase::kStop);
  bench.Pass(4s + 4s + 500ms);
  EXPECT_TRUE(bench.Killed().empty()) << "nobody is known to hang: what they are in may be their own";
  EXPECT_EQ(bench.Sent<StopOrder>().back().second.step_limit, 0s);
  bench.Pass(700ms);  // after the stop handler's limit, the longest step's, and the time to say so
  EXPECT_EQ(bench.Killed(), (std::set<int>{0, 1, 2, 3}));
}

TEST(Hang, ADeadlockOfAllIsTriedThreeTimesThenSaved) {
  Bench bench(HangPolicy());
  bench.Run();
  Steps(bench, 1, 9);
  bench.CommitAll(8);
  bench.Pass(30s);
  const auto incidents = bench.All<IncidentClosed>();
  ASSERT_EQ(incidents.size(), 3u);
  EXPECT_EQ(incidents[0].record.rung, Rung::kRetry);
  EXPECT_TRUE(incidents[0].record.ranks.empty()) << "nobody is to blame";
  EXPECT_EQ(incidents[2].record.rung, Rung::kDump);
  EXPECT_TRUE(bench.Killed().empty());
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  EXPECT_NE(bench.Ended()->text.find("deadlock"), std::string::npos) << bench.Ended()->text;
  EXPECT_NE(bench.Ended()->text.find("saved step 8"), std::string::npos) << bench.Ended()->text;
}

TEST(Hang, WhoLeftACollectiveOutIsToBlameAndTheThirdTimeEndsTheRun) {
  Bench bench(HangPolicy());
  bench.Run();
  Steps(bench, 1, 9);
  for (int i = 0; i < 3; ++i) {
    bench.CommitAll(8);
    for (int r : {0, 2, 3}) bench.places[r] = With(9, TrainPhase::kBackward, 1);
    bench.places[1] = With(9, TrainPhase::kGate, 0);
    bench.Pass(2300ms);
    ASSERT_EQ(bench.core.incidents(), static_cast<uint64_t>(i) + 1);
    EXPECT_EQ(bench.All<IncidentClosed>().back().record.ranks, std::vector<Rank>{Rank(1)});
  }
  EXPECT_TRUE(bench.Killed().empty());
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  EXPECT_NE(bench.Ended()->text.find("rank 1 came to the end of step 9 with 0 collectives, rank 0 with 1"),
            std::string::npos)
      << bench.Ended()->text;
}

TEST(Hang, StopWaitsForARankInASection) {
  Bench bench(HangPolicy());
  bench.Run();
  Steps(bench, 1, 9);
  bench.CommitAll(8);
  bench.places[2] = In(9, TrainPhase::kForward, Activity::kSection);
  bench.Pass(20ms);
  bench.hold = Phase::kStop;
  bench.Say(1, FaultReport{.kind = FaultKind::kException, .text = "boom", .step = Step(9)});
  ASSERT_EQ(bench.core.phase(), Phase::kStop);
  bench.hold.reset();
  for (int r : {0, 1, 3}) bench.Say(r, Parked{GateState::kCommitted, Step(8)});
  bench.Pass(100s);
  EXPECT_EQ(bench.core.phase(), Phase::kStop);
  EXPECT_TRUE(bench.Killed().empty());
  bench.Say(2, Parked{GateState::kCommitted, Step(8)});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.Sent<StopOrder>().back().second.activity_limit, 40s);
}

// Whatever it began with: whoever waited was freed by its stop handler.
TEST(Hang, StopGivesWhoStandsInAStepTheLearntLimit) {
  Policy policy = HangPolicy();
  policy.step_timeout = 60s;
  Bench bench(policy);
  bench.Run();
  Steps(bench, 1, 9);
  bench.CommitAll(8);
  bench.Say(1, FaultReport{.kind = FaultKind::kException, .text = "boom", .step = Step(9)});
  const auto orders = bench.Sent<StopOrder>();
  ASSERT_EQ(orders.size(), 4u);
  for (const auto& [rank, order] : orders) {
    EXPECT_EQ(order.step_limit, 2s) << "rank " << rank.value();
    EXPECT_EQ(order.park_limit, 60s) << "rank " << rank.value() << ", behind its commit";
  }
}

TEST(Hang, StopGivesNobodyALimitThatIsNotLearntOrIsNotWanted) {
  for (const double factor : {5.0, 0.0}) {
    Policy policy = HangPolicy();
    policy.hang_factor = factor;
    Bench bench(policy);
    bench.Run();
    if (factor == 0) Steps(bench, 1, 9), bench.CommitAll(8);
    bench.Say(1, FaultReport{.kind = FaultKind::kException, .text = "boom", .step = Step(1)});
    EXPECT_EQ(bench.Sent<StopOrder>().back().second.step_limit, 0s) << factor;
  }
}

// ---- the end by a rule that was broken, and by tensors that changed ------------------------------------------------

TEST(Refusal, EndsTheRunAtOnceAndSaysWhoAndWhat) {
  Policy policy = HangPolicy();
  policy.save_directory = "saves";
  Bench bench(policy);
  bench.Run();
  Steps(bench, 1, 9);
  bench.CommitAll(8);
  bench.Say(1, FaultReport{.kind = FaultKind::kRefused, .text = "Error: a second update", .step = Step(9)});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  EXPECT_EQ(bench.Ended()->text, "rank 1 ended the run at step 9: Error: a second update");
  EXPECT_TRUE(bench.Orders(Phase::kDump, 0).empty()) << "nothing is saved as if it were good";
}

TEST(Refusal, BeforeAnybodyTrainsIsAStartThatFailed) {
  Bench bench(HangPolicy());
  for (int r = 0; r < 4; ++r) bench.places[r] = In(0, TrainPhase::kForward);
  bench.Run();
  bench.Say(1, FaultReport{.kind = FaultKind::kRefused, .text = "Error: nothing is registered"});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitStartup);
}

TEST(FinishedChanged, EndsWithoutAComparisonAndSaysWhoChangedWhat) {
  Bench bench(HangPolicy());
  bench.Run();
  bench.CommitAll(9);
  for (int r = 0; r < 4; ++r) bench.Say(r, Finished{.step = Step(9), .changed = r == 2});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitSuccess);
  EXPECT_EQ(bench.Ended()->committed, Step(9));
  EXPECT_FALSE(bench.Ended()->final_digest);
  EXPECT_EQ(bench.Ended()->not_compared, "rank 2 changed registered tensors behind the last step, 9");
}

TEST(Inexact, IsToldOnceHoweverOftenItIsSaid) {
  Bench bench(HangPolicy());
  bench.Run();
  for (int i = 0; i < 3; ++i) bench.Say(1, Inexact{"object 'random', step 17"});
  bench.SayLate(2, Inexact{"object 'random', step 17"});
  const auto told = bench.All<InexactNews>();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].rank, Rank(2));
}

// ---- crash loops ---------------------------------------------------------------------------------------------------

void DieAt(Bench& bench, int rank, uint64_t step) {
  for (int r = 0; r < 4; ++r) bench.places[r] = In(step, TrainPhase::kForward);
  bench.CommitAll(step - 1);
  bench.Pass(20ms);
  bench.Exit(rank, "exited with code 9");
}

TEST(CrashLoop, ThreeDeathsAtOneStepEndTheRun) {
  Bench bench(HangPolicy());
  bench.Run();
  DieAt(bench, 1, 5);
  DieAt(bench, 1, 5);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  DieAt(bench, 1, 5);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  EXPECT_NE(bench.Ended()->text.find("rank 1 died 3 times at step 5 (last: exited with code 9)"), std::string::npos)
      << bench.Ended()->text;
}

TEST(CrashLoop, ProgressInBetweenForgives) {
  Bench bench(HangPolicy());
  bench.Run();
  DieAt(bench, 1, 5);
  DieAt(bench, 1, 5);
  DieAt(bench, 1, 6);
  EXPECT_FALSE(bench.Ended());
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(CrashLoop, DifferentRanksAreDifferentFaults) {
  Bench bench(HangPolicy());
  bench.Run();
  for (int r = 0; r < 4; ++r) DieAt(bench, r, 5);
  EXPECT_FALSE(bench.Ended());
}

}  // namespace
}  // namespace kintsugi::core
