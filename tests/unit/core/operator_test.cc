// What an operator asks for: that the run stands still, goes on, or gets a new process for a rank.
#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

Bench OperatorBench(Policy policy) {
  Bench bench(std::move(policy));
  bench.Run();
  bench.CommitAll(5);
  return bench;
}

// Every rank has begun step 5, stores the pause that it was told last, and comes to park there.
// `tells`: a rank whose beat says that it has come to the step behind, as whoever parks there does for a moment.
uint64_t ParkAll(Bench& bench, int world, std::optional<int> tells = {}) {
  const auto told = [&bench] { return bench.Sent<PauseAt>().back().second.step.value(); };
  while (told() < 5)
    for (int r = 0; r < world; ++r) bench.Say(r, PauseAck{Step(5)});
  const uint64_t at = told();
  for (int r = 0; r < world; ++r) bench.Say(r, PauseAck{Step(at)});
  bench.CommitAll(at);
  if (tells) bench.Say(*tells, Beat{.count = 1, .place = {.step = at + 1}});
  for (int r = 0; r < world; ++r) bench.Say(r, SavePoint{Step(at)});
  return at;
}

TEST(Pause, HoldsAllAtOneStepUntilItIsContinued) {
  Bench bench = OperatorBench(Bench::QuickPolicy(4));
  bench.Feed(OperatorPause{});
  EXPECT_FALSE(bench.core.saves().paused_at()) << "nobody is there yet";
  const uint64_t at = ParkAll(bench, 4);
  EXPECT_EQ(bench.core.saves().paused_at(), Step(at));
  EXPECT_TRUE(bench.Orders(Phase::kDump, 0).empty()) << "nobody asked for a save";
  bench.Pass(10min);
  EXPECT_EQ(bench.core.saves().paused_at(), Step(at)) << "however long it lasts";
  EXPECT_EQ(bench.core.incidents(), 0u) << "nobody hangs";
  EXPECT_TRUE(bench.Sent<ContinueOrder>().empty());
  bench.Feed(OperatorContinue{});
  EXPECT_EQ(bench.Sent<ContinueOrder>().size(), 4u);
  EXPECT_FALSE(bench.core.saves().paused_at());
  EXPECT_FALSE(bench.core.saves().pause_asked());
}

TEST(Pause, AskedForTwiceItIsOne) {
  Bench bench = OperatorBench(Bench::QuickPolicy(2));
  bench.Feed(OperatorPause{});
  bench.Feed(OperatorPause{});
  ParkAll(bench, 2);
  bench.Feed(OperatorPause{});
  bench.Feed(OperatorContinue{});
  EXPECT_EQ(bench.Sent<ContinueOrder>().size(), 2u);
  bench.Feed(OperatorContinue{});
  EXPECT_EQ(bench.Sent<ContinueOrder>().size(), 2u);
}

TEST(Pause, TakenBackBeforeAllAreThereLetsThemGoOn) {
  Bench bench = OperatorBench(Bench::QuickPolicy(2));
  bench.Feed(OperatorPause{});
  bench.Feed(OperatorContinue{});
  ParkAll(bench, 2);
  EXPECT_FALSE(bench.core.saves().paused_at());
  EXPECT_EQ(bench.Sent<ContinueOrder>().size(), 2u);
  EXPECT_TRUE(bench.Orders(Phase::kDump, 0).empty());
}

TEST(Pause, ASaveIsMadeWithinItAndItGoesOn) {
  Bench bench = OperatorBench(Bench::QuickPolicy(4));
  bench.Feed(OperatorPause{});
  const uint64_t at = ParkAll(bench, 4);
  bench.Feed(OperatorSave{});
  ASSERT_EQ(bench.Orders(Phase::kDump, 0).size(), 1u);
  EXPECT_EQ(bench.Orders(Phase::kDump, 0)[0].step, Step(at));
  ASSERT_EQ(bench.All<SaveSettled>().size(), 1u);
  EXPECT_EQ(bench.core.saves().paused_at(), Step(at));
  EXPECT_TRUE(bench.Sent<ContinueOrder>().empty());
  bench.Feed(OperatorSave{});
  ASSERT_EQ(bench.All<SaveSettled>().size(), 2u) << "this step is saved already: it is answered, and written once";
  EXPECT_TRUE(bench.All<SaveSettled>()[1].saved);
  EXPECT_EQ(bench.Orders(Phase::kDump, 0).size(), 1u);
  EXPECT_EQ(bench.core.saves().paused_at(), Step(at));
  bench.Feed(OperatorContinue{});
  EXPECT_EQ(bench.Sent<ContinueOrder>().size(), 4u);
}

TEST(Pause, ASaveOnItsWayEndsInIt) {
  Bench bench = OperatorBench(Bench::QuickPolicy(2));
  bench.Feed(OperatorSave{});
  bench.Feed(OperatorPause{});
  const uint64_t at = ParkAll(bench, 2);
  ASSERT_EQ(bench.All<SaveSettled>().size(), 1u);
  EXPECT_TRUE(bench.All<SaveSettled>()[0].saved);
  EXPECT_EQ(bench.core.saves().paused_at(), Step(at));
}

TEST(Pause, APauseOnItsWayTakesASaveAlong) {
  Bench bench = OperatorBench(Bench::QuickPolicy(2));
  bench.Feed(OperatorPause{});
  bench.Feed(OperatorSave{});
  const uint64_t at = ParkAll(bench, 2);
  ASSERT_EQ(bench.All<SaveSettled>().size(), 1u);
  EXPECT_EQ(bench.core.saves().paused_at(), Step(at));
}

TEST(Pause, AtAPeriodicSaveTheSaveIsMadeFirst) {
  Policy policy = Bench::QuickPolicy(2);
  policy.save_every = 6;
  Bench bench = OperatorBench(policy);
  bench.CommitAll(6);
  bench.Say(0, SavePoint{Step(6)});
  bench.Feed(OperatorPause{});
  for (int round = 0; round < 2; ++round)  // the second one for the step to which the pause has moved
    for (int r = 0; r < 2; ++r) bench.Say(r, PauseAck{Step(6)});
  bench.Say(1, SavePoint{Step(6)});
  ASSERT_EQ(bench.All<SaveSettled>().size(), 1u);
  EXPECT_EQ(bench.core.saves().paused_at(), Step(6));
}

TEST(Pause, AtAStepThatIsComparedNothingIsSaved) {
  Policy policy = Bench::QuickPolicy(2);
  policy.verify_every = 5;
  Bench bench = OperatorBench(policy);
  bench.Feed(OperatorPause{});
  const uint64_t at = ParkAll(bench, 2);
  ASSERT_EQ(at % 5, 0u) << "the test wants such a step";
  EXPECT_EQ(bench.Orders(Phase::kVerify, 0).size(), 2u) << "at the start, and here";
  EXPECT_TRUE(bench.Orders(Phase::kDump, 0).empty());
  EXPECT_EQ(bench.core.saves().paused_at(), Step(at));
}

TEST(Pause, AFaultInItIsRepairedAndTheRunPausesAgain) {
  Bench bench = OperatorBench(Bench::QuickPolicy(4));
  bench.Feed(OperatorPause{});
  ParkAll(bench, 4);
  const size_t pauses = bench.Sent<PauseAt>().size();
  bench.Exit(1);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning) << "all ranks of the bench answer at once";
  EXPECT_EQ(bench.core.incidents(), 1u);
  EXPECT_FALSE(bench.core.saves().paused_at());
  ASSERT_EQ(bench.Sent<PauseAt>().size(), pauses + 4);
  const uint64_t at = ParkAll(bench, 4);
  EXPECT_EQ(bench.core.saves().paused_at(), Step(at));
}

TEST(Pause, AGapOfAConnectionThatHealsLeavesItAsItIs) {
  Bench bench = OperatorBench(Bench::QuickPolicy(2));
  bench.Feed(OperatorPause{});
  const uint64_t at = ParkAll(bench, 2);
  bench.Close(1);
  ASSERT_EQ(bench.core.phase(), Phase::kConfirm);
  bench.Rejoin(1);
  bench.Say(1, SavePoint{Step(at)});  // what it said unasked it says again
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.core.saves().paused_at(), Step(at));
  EXPECT_TRUE(bench.Sent<ContinueOrder>().empty());
  bench.Feed(OperatorContinue{});
  EXPECT_EQ(bench.Sent<ContinueOrder>().size(), 2u);
}

TEST(Pause, AStopSavesWhereTheRunStandsAndLeaves) {
  Bench bench = OperatorBench(Bench::QuickPolicy(2));
  bench.Feed(OperatorPause{});
  const uint64_t at = ParkAll(bench, 2);
  bench.Feed(OperatorStop{});
  ASSERT_EQ(bench.Orders(Phase::kDump, 0).size(), 1u);
  EXPECT_EQ(bench.Orders(Phase::kDump, 0)[0].step, Step(at));
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable);
}

TEST(Pause, AfterAStopThereIsNone) {
  Bench bench = OperatorBench(Bench::QuickPolicy(2));
  bench.Feed(OperatorStop{});
  bench.Feed(OperatorPause{});
  EXPECT_FALSE(bench.core.saves().pause_asked());
  ParkAll(bench, 2);
  ASSERT_TRUE(bench.Ended());
}

TEST(Pause, OvertakenByTheEndItSavesNothing) {
  Bench bench = OperatorBench(Bench::QuickPolicy(2));
  bench.Feed(OperatorPause{});
  for (int r = 0; r < 2; ++r) bench.Say(r, Finished{Step(9)});
  EXPECT_TRUE(bench.Orders(Phase::kDump, 0).empty());
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitSuccess);
}

TEST(Pause, AskedForBeforeTheRunBeganItIsTheFirstThing) {
  Bench bench(Bench::QuickPolicy(2));
  bench.Feed(OperatorPause{});
  bench.Run();
  ParkAll(bench, 2);
  EXPECT_TRUE(bench.core.saves().paused_at());
}

// Four ranks in pairs, of which a launcher keeps the state.
Bench KeptBench(Policy policy) {
  policy.adopts = true;
  Bench bench = OperatorBench(std::move(policy));
  return bench;
}

TEST(Replace, TheOldProcessGoesWhereAllStandAtOneStepAndNotBefore) {
  Bench bench = KeptBench(Bench::QuickPolicy(4));
  bench.Feed(OperatorReplace{Rank(2)});
  EXPECT_TRUE(bench.Killed().empty());
  EXPECT_EQ(bench.core.incidents(), 0u);
  const uint64_t at = ParkAll(bench, 4, 1);
  EXPECT_TRUE(bench.Orders(Phase::kDump, 0).empty()) << "its launcher keeps what it holds";
  EXPECT_EQ(bench.All<StepDecided>().back().step, Step(at));
  EXPECT_EQ(bench.Killed(), (std::set<int>{2}));
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  ASSERT_EQ(bench.All<IncidentClosed>().size(), 1u);
  const IncidentRecord record = bench.All<IncidentClosed>()[0].record;
  EXPECT_EQ(record.signal, FaultKind::kOperator);
  EXPECT_EQ(record.ranks, (std::vector<Rank>{Rank(2)}));
  EXPECT_EQ(record.rung, Rung::kRespawn);
  EXPECT_EQ(record.begun, Step(at)) << "no step is lost";
  EXPECT_EQ(bench.member(2).incarnation, Incarnation(2));
}

TEST(Replace, InAnIncidentOrForNobodyItIsNotDone) {
  Bench bench = OperatorBench(Bench::QuickPolicy(4));
  bench.Feed(OperatorReplace{Rank(4)});
  bench.Feed(OperatorReplace{Rank(-1)});
  EXPECT_EQ(bench.core.incidents(), 0u);
  bench.replacements_come = false;
  bench.Exit(1);
  ASSERT_NE(bench.core.phase(), Phase::kRunning);
  bench.Feed(OperatorReplace{Rank(2)});
  EXPECT_EQ(bench.Killed().count(2), 0u);
}

// Else the loss of its partner, before the new process has the state, would be the loss of all.
TEST(Replace, WhereNothingOutlivesTheProcessTheRunIsSavedFirst) {
  Bench bench = OperatorBench(Bench::QuickPolicy(4));
  bench.Feed(OperatorReplace{Rank(2)});
  bench.replacements_come = false;
  const uint64_t at = ParkAll(bench, 4);
  ASSERT_EQ(bench.All<CheckpointReady>().size(), 1u);
  EXPECT_EQ(bench.All<CheckpointReady>()[0].step, Step(at));
  ASSERT_EQ(bench.Killed(), (std::set<int>{2})) << "in place of leaving the boundary";
  bench.Exit(0);  // its partner
  for (int r : {0, 2}) bench.JoinAndReady(r);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kReload);
  EXPECT_EQ(bench.All<StepDecided>().back().step, Step(at)) << "and no step is lost";
}

TEST(Replace, WhereNothingOutlivesTheProcessAndNothingCanBeSavedItIsRefused) {
  Policy policy = Bench::QuickPolicy(4);
  policy.save_directory.clear();
  Bench bench = OperatorBench(policy);
  EXPECT_EQ(bench.core.WhyNotReplaced(Rank(2)).find("rank 0 alone holds the same state"), 0u)
      << bench.core.WhyNotReplaced(Rank(2));
  bench.Feed(OperatorReplace{Rank(2)});
  EXPECT_TRUE(bench.Killed().empty());
}

TEST(Replace, ASaveThatFailsBeforeItLeavesTheOldProcessInPlace) {
  Bench bench = OperatorBench(Bench::QuickPolicy(4));
  bench.Feed(OperatorReplace{Rank(2)});
  bench.hold = Phase::kDump;
  ParkAll(bench, 4);
  for (int r = 0; r < 4; ++r)
    if (!bench.Orders(Phase::kDump, r).empty())
      bench.Say(r, PhaseDone{.phase = Phase::kDump, .code = StatusCode::kResourceExhausted, .text = "disk full"});
  EXPECT_TRUE(bench.Killed().empty());
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  ASSERT_EQ(bench.All<ReplaceRefused>().size(), 1u);
  EXPECT_NE(bench.All<ReplaceRefused>()[0].why.find("disk full"), std::string::npos);
  EXPECT_FALSE(bench.core.saves().replacements().waits());
  EXPECT_EQ(bench.Sent<ContinueOrder>().size(), 4u);
}

TEST(Replace, CopiesAreComparedFirstWhereThatWasAskedFor) {
  Policy policy = Bench::QuickPolicy(4);
  policy.verify_every = 1000;
  Bench bench = KeptBench(policy);
  bench.digests[0][0] = 77;  // its partner's has flipped
  bench.Feed(OperatorReplace{Rank(2)});
  ParkAll(bench, 4);
  EXPECT_FALSE(bench.Killed().count(2)) << "the healthy copy, perhaps";
  ASSERT_TRUE(bench.Ended()) << "two copies that differ: nothing to go back to";
  EXPECT_NE(bench.Ended()->exit_code, kExitSuccess);
}

TEST(Replace, AnIncidentOnTheWayPutsItOffAndAProcessThatIsNewByThenHasMetIt) {
  Bench bench = KeptBench(Bench::QuickPolicy(4));
  bench.Feed(OperatorReplace{Rank(2)});
  bench.Feed(OperatorReplace{Rank(3)});
  bench.Exit(3);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_TRUE(bench.core.saves().replacements().Waits(Rank(2)));
  EXPECT_FALSE(bench.core.saves().replacements().Waits(Rank(3)));
  ParkAll(bench, 4);
  EXPECT_EQ(bench.Killed(), (std::set<int>{2}));
  EXPECT_EQ(bench.member(3).incarnation, Incarnation(2)) << "one new process, not two";
}

TEST(Replace, WhereNoBoundaryComesTheOldProcessStaysAndWhoAskedIsTold) {
  Policy policy = Bench::QuickPolicy(4);
  policy.hang_factor = 0;
  Bench bench = KeptBench(policy);
  bench.Feed(OperatorReplace{Rank(2)});
  bench.Pass(3900ms);
  EXPECT_TRUE(bench.All<ReplaceRefused>().empty());
  bench.Pass(200ms);
  EXPECT_EQ(bench.All<ReplaceRefused>().size(), 1u);
  EXPECT_TRUE(bench.Killed().empty());
}

TEST(Replace, InAPauseItIsDoneAtOnceAndTheRunPausesAgain) {
  Bench bench = KeptBench(Bench::QuickPolicy(4));
  bench.Feed(OperatorPause{});
  ParkAll(bench, 4);
  bench.Feed(OperatorReplace{Rank(2)});
  EXPECT_EQ(bench.Killed(), (std::set<int>{2}));
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  ParkAll(bench, 4);
  EXPECT_TRUE(bench.core.saves().paused_at());
}

// Nodes of two ranks, each rank's partner on the other node: 0 and 2, 1 and 3.
TEST(Drain, AllRanksOfTheNodeGoAtOneStepAndNoneBeginsThere) {
  Bench bench = KeptBench(Bench::QuickPolicy(4));
  bench.Feed(OperatorDrain{Rank(2), 2});
  EXPECT_TRUE(bench.Killed().empty());
  bench.replacements_come = false;
  const uint64_t at = ParkAll(bench, 4);
  ASSERT_EQ(bench.All<CheckpointReady>().size(), 1u) << "what a launcher keeps stays on its host";
  EXPECT_EQ(bench.All<CheckpointReady>()[0].step, Step(at));
  EXPECT_EQ(bench.Killed(), (std::set<int>{2, 3}));
  ASSERT_EQ(bench.All<NodeCutOff>().size(), 1u);
  EXPECT_EQ(bench.All<NodeCutOff>()[0].first, Rank(2));
  EXPECT_EQ(bench.core.incidents(), 1u);
  ASSERT_TRUE(bench.core.MayMove(Rank(2), 2));
  bench.replacements_come = true;
  bench.Feed(RanksMoved{Rank(2), 2, 2});
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  const IncidentRecord record = bench.All<IncidentClosed>().back().record;
  EXPECT_EQ(record.signal, FaultKind::kOperator);
  EXPECT_EQ(record.ranks, (std::vector<Rank>{Rank(2), Rank(3)}));
  EXPECT_EQ(bench.All<StepDecided>().back().step, Step(at));
  EXPECT_FALSE(bench.core.saves().replacements().waits());
}

TEST(Drain, IsToldBeforeAnyProcessIsAskedForAnew) {
  Bench bench = KeptBench(Bench::QuickPolicy(4));
  bench.Feed(OperatorDrain{Rank(2), 2});
  bench.replacements_come = false;
  ParkAll(bench, 4);
  size_t cut = 0, spawned = 0, at = 0;
  for (const ControllerAction& action : bench.seen) {
    ++at;
    if (std::holds_alternative<NodeCutOff>(action)) cut = at;
    if (const auto* spawn = std::get_if<SpawnProcess>(&action); spawn && spawn->rank == Rank(2) && spawn->incarnation > Incarnation(1) && !spawned)
      spawned = at;
  }
  EXPECT_GT(cut, 0u);
  EXPECT_GT(spawned, cut);
}

TEST(Drain, WhatTheNodeAloneHoldsIsSavedForItAndNoStepIsLost) {
  Bench bench = OperatorBench(Bench::QuickPolicy(4));
  bench.Feed(OperatorDrain{Rank(0), 3});  // 0 and its partner 2
  bench.replacements_come = false;
  const uint64_t at = ParkAll(bench, 4);
  ASSERT_EQ(bench.All<CheckpointReady>().size(), 1u);
  bench.replacements_come = true;
  bench.Feed(RanksMoved{Rank(0), 3, 2});
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kReload);
  EXPECT_EQ(bench.All<StepDecided>().back().step, Step(at));
}

TEST(Drain, WhereItCannotBeItIsRefused) {
  Policy policy = Bench::QuickPolicy(4);
  policy.save_directory.clear();
  Bench bench = OperatorBench(policy);
  EXPECT_NE(bench.core.WhyNotDrained(Rank(0), 3).find("no other rank holds outside of its node"), std::string::npos)
      << bench.core.WhyNotDrained(Rank(0), 3);
  EXPECT_EQ(bench.core.WhyNotDrained(Rank(2), 2).find("rank 0 alone holds the same state"), 0u) << bench.core.WhyNotDrained(Rank(2), 2);
  EXPECT_NE(bench.core.WhyNotDrained(Rank(3), 2), "");
  EXPECT_NE(bench.core.WhyNotDrained(Rank(-1), 2), "");
  for (const OperatorDrain& drain : {OperatorDrain{Rank(0), 3}, OperatorDrain{Rank(2), 2}, OperatorDrain{Rank(3), 2}, OperatorDrain{Rank(0), 0}})
    bench.Feed(drain);
  EXPECT_EQ(bench.All<ReplaceRefused>().size(), 4u);
  EXPECT_TRUE(bench.Killed().empty());
}

TEST(Drain, AnIncidentOnTheWayPutsItOffAndANodeThatLostItsRanksByThenIsFreeOfThem) {
  Bench bench = KeptBench(Bench::QuickPolicy(4));
  bench.Feed(OperatorDrain{Rank(2), 2});
  bench.Exit(3);  // it comes back on the same node
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_TRUE(bench.core.saves().replacements().Waits(Rank(2)));
  bench.replacements_come = false;
  for (int r : {2, 3}) bench.Exit(r);
  ASSERT_TRUE(bench.core.MayMove(Rank(2), 2));
  bench.replacements_come = true;
  bench.Feed(RanksMoved{Rank(2), 2, 2});
  EXPECT_FALSE(bench.core.saves().replacements().waits()) << "else the node that has them now would be drained";
}

}  // namespace
}  // namespace kintsugi::core
