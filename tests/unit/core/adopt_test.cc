// Memory that outlives its process: what is held after an end, and what the ladder and the controller make of it.
#include <gtest/gtest.h>

#include "runtime/core/held_state.h"
#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

// Four ranks; 0 and 2 hold one shard, 1 and 3 the other; all have committed step 5.
Bench AdoptBench(int max_respawns = 10) {
  Policy policy = Bench::QuickPolicy(4);
  policy.adopts = true;
  policy.max_respawns = max_respawns;
  Bench bench(policy);
  bench.Run();
  bench.CommitAll(5);
  return bench;
}

IncidentRecord Last(const Bench& bench) { return bench.All<IncidentClosed>().back().record; }

void Hold(Bench& bench, int rank, uint64_t step, bool clean = true) {
  bench.Feed(StateHeld{Rank(rank), HeldState{bench.member(rank).incarnation, Step(step), clean}});
}

TEST(HeldAfter, IsWhatAWholeProcessLeaves) {
  const HeldState before{Incarnation(1), Step(3), true};
  for (const auto& [offered, given] : {std::pair(false, false), {false, true}, {true, false}, {true, true}})
    for (const auto mark : {StateMark::kNotYet, StateMark::kWriting, StateMark::kWhole})
      for (int state = 0; state < 8; ++state)
        for (const uint64_t step : {0, 1, 9}) {
          const GateWord word{false, static_cast<GateState>(state), Step(step)};
          const auto held = HeldAfter(before, {Incarnation(2), mark, word, offered, false, given});
          // The predecessor's memory stays what it was until the process has begun to write into it.
          if (mark == StateMark::kNotYet || (mark == StateMark::kWriting && !given)) {
            EXPECT_EQ(held, before);
            continue;
          }
          std::optional<HeldState> expected;
          if (mark == StateMark::kWhole && offered && state == 0)
            expected = HeldState{Incarnation(2), Step(step), false};
          if (mark == StateMark::kWhole && offered && state == 1 && step > 0)
            expected = HeldState{Incarnation(2), Step(step - 1), false};
          EXPECT_EQ(held, expected) << state << " " << step;
        }
  EXPECT_EQ(HeldAfter(std::nullopt, {Incarnation(2), StateMark::kNotYet, {}, true, true}), std::nullopt);
}

TEST(Adopt, IsTheRungWhereTheMemoryStandsAtTheStep) {
  Bench bench = AdoptBench();
  Hold(bench, 1, 5);
  bench.Exit(1);
  EXPECT_EQ(Last(bench).rung, Rung::kAdopt);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  const std::vector<PhaseOrder> orders = bench.Orders(Phase::kRepair, 1);
  ASSERT_EQ(orders.size(), 1u);
  ASSERT_EQ(orders[0].moves.size(), 1u);
  EXPECT_TRUE(orders[0].moves[0].adopt);
  EXPECT_TRUE(orders[0].moves[0].sources.empty());
  // What was held is live again: the next death leaves nothing unless its launcher says so.
  bench.Exit(1);
  EXPECT_EQ(Last(bench).rung, Rung::kRespawn);
}

TEST(Adopt, IsRefusedWhereTheMemoryStandsElsewhere) {
  Bench bench = AdoptBench();
  Hold(bench, 1, 4);
  bench.Exit(1);
  EXPECT_EQ(Last(bench).rung, Rung::kRespawn);
  const auto& reasons = Last(bench).reasons;
  const auto adopt = std::find_if(reasons.begin(), reasons.end(), [](const auto& r) { return r.rung == Rung::kAdopt; });
  ASSERT_NE(adopt, reasons.end());
  EXPECT_EQ(adopt->reason, Refusal::kHeldElsewhere) << adopt->text;
}

TEST(Adopt, BringsAWholeReplicaGroupBack) {
  Bench bench = AdoptBench();
  Hold(bench, 1, 5);
  Hold(bench, 3, 5);
  bench.hold = Phase::kLock;
  bench.Exit(1);
  bench.hold.reset();
  bench.Exit(3);
  EXPECT_EQ(Last(bench).rung, Rung::kAdopt);
  EXPECT_EQ(Last(bench).step, Step(5));
}

TEST(Adopt, DoesNotTrustACrashThatNobodyVouchesFor) {
  Bench bench = AdoptBench();
  Hold(bench, 1, 5, /*clean=*/false);
  bench.Exit(1, "killed by SIGSEGV");
  EXPECT_EQ(Last(bench).rung, Rung::kAdopt) << "its replica compares";

  for (const bool agree : {true, false}) {
    Bench both = AdoptBench();
    Hold(both, 1, 5, /*clean=*/false);
    Hold(both, 3, 5, /*clean=*/false);
    if (!agree) both.digests[3][0] = 99;
    both.hold = Phase::kLock;
    both.Exit(1, "killed by SIGSEGV");
    both.hold.reset();
    both.Exit(3, "killed by SIGSEGV");
    EXPECT_EQ(both.Ended().has_value(), !agree) << "two crashes that left the same bits vouch for each other";
    if (agree) {
      EXPECT_EQ(Last(both).rung, Rung::kAdopt);
    }
  }
}

TEST(Adopt, AHeldCopyIsTheSourceOfItsReplicasRepair) {
  Bench bench = AdoptBench();
  Hold(bench, 1, 5);
  bench.hold = Phase::kLock;
  bench.Exit(1);
  bench.Say(3, FaultReport{FaultKind::kMemoryHigh, "double bit error", {}, Step(6), false, bench.now});
  bench.hold.reset();
  for (int r : {0, 2, 3}) bench.Say(r, LockReply{GateState::kCommitted, Step(5), r != 3});
  bench.Say(1, LockReply{GateState::kCommitted, Step(), false});  // its replacement
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(Last(bench).rung, Rung::kAdopt);
  const std::vector<RepairMove> moves = bench.Orders(Phase::kRepair, 1).back().moves;
  ASSERT_EQ(moves.size(), 2u);
  EXPECT_TRUE(moves[0].adopt);
  EXPECT_EQ(moves[1].destination, Rank(3));
  EXPECT_EQ(moves[1].sources, std::vector<Rank>{Rank(1)});
}

TEST(Adopt, AHeldCopyAtTheStepRepairsOneThatStandsBeforeIt) {
  Bench bench = AdoptBench();
  Hold(bench, 1, 5);
  Hold(bench, 3, 4);  // killed at the gate of step 5
  bench.hold = Phase::kLock;
  bench.Exit(1);
  bench.hold.reset();
  bench.Exit(3);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(Last(bench).step, Step(5));
  EXPECT_EQ(Last(bench).rung, Rung::kRespawn);
  const std::vector<RepairMove> moves = bench.Orders(Phase::kRepair, 3).back().moves;
  for (const RepairMove& move : moves)
    EXPECT_EQ(move.adopt, move.destination == Rank(1)) << move.destination.ToString();
}

TEST(Adopt, OfTwoAdoptedCopiesTheOneThatCrashedIsTheWrongOne) {
  Bench bench = AdoptBench();
  Hold(bench, 1, 5, /*clean=*/false);
  Hold(bench, 3, 5);
  bench.digests[1][0] = 99;
  bench.hold = Phase::kLock;
  bench.Exit(1, "killed by SIGSEGV");
  bench.hold = Phase::kRollback;
  bench.Exit(3);
  for (int r : {0, 2}) bench.Say(r, LockReply{GateState::kCommitted, Step(5), true});
  // The second attempt streams it from the other.
  const std::vector<PhaseOrder> orders = bench.Orders(Phase::kRepair, 1);
  ASSERT_GE(orders.size(), 2u);
  EXPECT_TRUE(orders[0].moves[0].adopt);
  EXPECT_FALSE(orders[1].moves[0].adopt);
  EXPECT_EQ(orders[1].moves[0].sources, std::vector<Rank>{Rank(3)});
}

// What was adopted after a crash is believed less until the run goes on, and like any other from then on.
TEST(Adopt, ACopyOnceAdoptedIsInDoubtNoMoreAndNoLessThanItsReplica) {
  Policy policy = Bench::QuickPolicy(4);
  policy.adopts = true;
  policy.verify_every = 4;
  Bench bench(policy);
  bench.Run();
  bench.CommitAll(5);
  Hold(bench, 1, 5, /*clean=*/false);
  bench.Exit(1, "killed by SIGSEGV");
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  ASSERT_EQ(Last(bench).rung, Rung::kAdopt);
  bench.digests[3][0] = 99;
  bench.hold = Phase::kLock;
  for (int r = 0; r < 4; ++r) bench.Say(r, SavePoint{Step(8)});
  ASSERT_EQ(bench.core.phase(), Phase::kLock);
  EXPECT_TRUE(bench.member(1).trust.needs_repair());
  EXPECT_TRUE(bench.member(3).trust.needs_repair()) << "nothing tells which of the two is right";
}

// All that hold one shard have ended, and none may be started to go on.
Bench WithoutRespawns(std::set<int> do_not_come = {}) {
  Bench bench = AdoptBench(/*max_respawns=*/0);
  bench.mute = std::move(do_not_come);
  Hold(bench, 1, 5);
  Hold(bench, 3, 5);
  bench.hold = Phase::kLock;
  bench.Exit(1);
  bench.hold.reset();
  bench.Exit(3);
  return bench;
}

TEST(Rescue, WhatOnlyLaunchersHoldIsAdoptedComparedAndSaved) {
  Bench bench = WithoutRespawns();
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable) << bench.Ended()->text;
  EXPECT_EQ(Last(bench).rung, Rung::kDump);
  for (int r : {1, 3}) {
    ASSERT_EQ(bench.Orders(Phase::kRepair, r).size(), 1u);
    EXPECT_EQ(bench.Orders(Phase::kVerify, r).size(), 2u) << "when the run began, and now";
    EXPECT_EQ(bench.Orders(Phase::kRebuild, r).size(), 1u) << "when the run began";
  }
  ASSERT_EQ(bench.Orders(Phase::kDump, 1).size(), 1u);
  EXPECT_TRUE(bench.Orders(Phase::kDump, 3).empty()) << "one of them writes";
}

TEST(Rescue, CopiesThatDifferAreNotSaved) {
  Bench bench = AdoptBench(/*max_respawns=*/0);
  Hold(bench, 1, 5);
  Hold(bench, 3, 5);
  bench.digests[3][0] = 99;
  bench.hold = Phase::kLock;
  bench.Exit(1);
  bench.hold.reset();
  bench.Exit(3);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  for (int r = 0; r < 4; ++r) EXPECT_TRUE(bench.Orders(Phase::kDump, r).empty());
}

TEST(Rescue, IsTriedTwiceAndThenTheRunEnds) {
  Bench bench = WithoutRespawns({1, 3});
  ASSERT_EQ(bench.core.phase(), Phase::kDump);
  EXPECT_TRUE(bench.core.WaitsAreBounded());
  bench.Pass(bench.core.policy().join_timeout + std::chrono::milliseconds(50));
  ASSERT_FALSE(bench.Ended());
  bench.Pass(bench.core.policy().join_timeout + std::chrono::seconds(2));
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  EXPECT_NE(bench.Ended()->text.find("held by a launcher alone"), std::string::npos) << bench.Ended()->text;
}

TEST(Rescue, OfAStopItHasAllThatIsLeftOfTheGraceLessTheTimeToWrite) {
  Policy policy = Bench::QuickPolicy(4);
  policy.adopts = true;
  policy.max_respawns = 0;
  policy.grace = std::chrono::seconds(8);
  policy.join_timeout = std::chrono::seconds(60);
  Bench bench(policy);
  bench.Run();
  bench.CommitAll(5);
  bench.mute = {1, 3};
  Hold(bench, 1, 5);
  Hold(bench, 3, 5);
  bench.hold = Phase::kLock;
  bench.Exit(1);
  bench.Feed(OperatorStop{});
  bench.hold.reset();
  bench.Exit(3);
  ASSERT_EQ(bench.core.phase(), Phase::kDump);
  bench.Pass(std::chrono::milliseconds(5900));  // of the six seconds that are not for writing
  ASSERT_EQ(bench.core.phase(), Phase::kDump) << "their programs may take long to load";
  bench.mute.clear();
  for (int r : {1, 3}) bench.JoinAndReady(r);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable) << bench.Ended()->text;
}

// A repair may have ten minutes, a stop has its grace.
TEST(Grace, IsNotSpentWithAHandlerThatHangs) {
  for (const Phase phase : {Phase::kClean, Phase::kRebuild, Phase::kRepair, Phase::kVerify, Phase::kRollback}) {
    Policy policy = Bench::QuickPolicy(4);
    policy.grace = std::chrono::seconds(8);
    policy.step_timeout = std::chrono::seconds(60);
    Bench bench(policy);
    bench.Run();
    bench.CommitAll(5);
    bench.hold = phase;
    bench.Exit(1);
    ASSERT_EQ(bench.core.phase(), phase);
    bench.Feed(OperatorStop{});
    bench.Pass(std::chrono::milliseconds(1900));
    ASSERT_EQ(bench.core.phase(), phase) << "it may end yet";
    bench.hold.reset();
    bench.mute = {0};  // its trainer is in its handler
    bench.Pass(std::chrono::milliseconds(150));
    ASSERT_EQ(bench.core.phase(), Phase::kLock) << PhaseName(phase);
    bench.Say(0, LockReply{GateState::kCommitted, Step(5), true});
    bench.Pass(std::chrono::milliseconds(4100));
    ASSERT_TRUE(bench.Ended()) << PhaseName(phase);
    EXPECT_EQ(bench.Ended()->exit_code, kExitResumable) << PhaseName(phase) << ": " << bench.Ended()->text;
    EXPECT_TRUE(bench.Killed().count(0)) << PhaseName(phase);
  }
}

TEST(Rescue, AProcessThatDiesBeforeItCanSaveIsStartedOnceMore) {
  Bench bench = WithoutRespawns({1, 3});
  ASSERT_EQ(bench.core.phase(), Phase::kDump);
  bench.mute.clear();
  bench.Exit(1, "exited with code 1");
  ASSERT_FALSE(bench.Ended());
  bench.JoinAndReady(3);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable) << bench.Ended()->text;
}

// Ranks 1 and 3 on a node that is away: nobody hears of them, and they may live.
Bench WithANodeAway() {
  Policy policy = Bench::QuickPolicy(4);
  policy.adopts = policy.needs_consent = true;
  policy.consent_wait = std::chrono::seconds(20);
  Bench bench(policy);
  bench.Run();
  bench.CommitAll(5);
  bench.silent = bench.mute = {1, 3};
  bench.replacements_come = false;
  bench.Pass(policy.silence + std::chrono::milliseconds(50));
  return bench;
}

TEST(Away, ANodeThatComesBackBringsWhatItsGivenUpRanksHold) {
  Bench bench = WithANodeAway();
  ASSERT_EQ(bench.core.phase(), Phase::kLock);
  bench.Pass(std::chrono::seconds(10));
  ASSERT_EQ(bench.core.phase(), Phase::kLock) << "both copies of a shard are on it";
  EXPECT_TRUE(bench.core.WaitsAreBounded());
  bench.silent.clear();
  bench.mute.clear();
  for (int r : {1, 3}) {
    bench.Feed(StateHeld{Rank(r), HeldState{Incarnation(1), Step(5), true}});
    bench.Feed(ProcessExited{Rank(r), Incarnation(1), "killed by SIGKILL", std::nullopt});
  }
  EXPECT_EQ(bench.core.incident()->rung, Rung::kAdopt);
}

TEST(Away, OneOfTwoCopiesIsEnough) {
  Bench bench = WithANodeAway();
  bench.Feed(StateHeld{Rank(3), HeldState{Incarnation(1), Step(5), true}});
  bench.Feed(ProcessExited{Rank(3), Incarnation(1), "killed by SIGKILL", std::nullopt});
  ASSERT_TRUE(bench.core.incident().has_value());
  bench.Pass(std::chrono::milliseconds(150));
  EXPECT_EQ(bench.core.incident()->step, Step(5)) << "the other is not waited for";
}

TEST(Away, IsNotWaitedForForEver) {
  Bench bench = WithANodeAway();
  bench.Pass(bench.core.policy().consent_wait);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
}

TEST(Adopt, OneOfTwoLostRanksIsStreamedTheOtherNot) {
  Bench bench = AdoptBench();
  Hold(bench, 1, 5);
  bench.hold = Phase::kLock;
  bench.Exit(1);
  bench.hold.reset();
  bench.Exit(2);
  EXPECT_EQ(Last(bench).rung, Rung::kRespawn);
  const std::vector<PhaseOrder> orders = bench.Orders(Phase::kRepair, 0);
  ASSERT_FALSE(orders.empty());
  for (const RepairMove& move : orders.back().moves) EXPECT_EQ(move.adopt, move.destination == Rank(1));
}

TEST(Adopt, MemoryThatDiffersFromTheReplicaIsStreamedInstead) {
  Bench bench = AdoptBench();
  Hold(bench, 1, 5);
  bench.digests[1][0] = 99;
  bench.hold = Phase::kRollback;
  bench.Exit(1);
  // The mismatch is a fault of its own; the second attempt streams.
  const std::vector<PhaseOrder> orders = bench.Orders(Phase::kRepair, 1);
  ASSERT_GE(orders.size(), 2u);
  EXPECT_TRUE(orders[0].moves[0].adopt);
  EXPECT_FALSE(orders[1].moves[0].adopt);
  EXPECT_EQ(orders[1].moves[0].sources, std::vector<Rank>{Rank(3)});
}

TEST(Adopt, TwoAdoptedCopiesThatDifferAreBothInDoubt) {
  Bench bench = AdoptBench();
  Hold(bench, 1, 5);
  Hold(bench, 3, 5);
  bench.digests[3][0] = 99;
  bench.hold = Phase::kLock;
  bench.Exit(1);
  bench.hold.reset();
  bench.Exit(3);
  ASSERT_TRUE(bench.Ended().has_value()) << "nothing tells which is right, and there is no checkpoint";
  EXPECT_NE(bench.Ended()->exit_code, 0);
}

TEST(Adopt, WhatIsDamagedOnceItIsMappedIsNotHeldAnyMore) {
  Bench bench = AdoptBench();
  Hold(bench, 1, 5);
  bench.hold = Phase::kRepair;
  bench.Exit(1);
  ASSERT_EQ(bench.core.phase(), Phase::kRepair);
  bench.hold = Phase::kRollback;
  bench.Say(1, FaultReport{FaultKind::kMemoryHigh, "double bit error", {}, Step(6), false, bench.now});
  ASSERT_EQ(bench.core.phase(), Phase::kRollback);
  EXPECT_FALSE(bench.Orders(Phase::kRepair, 1).back().moves[0].adopt);
}

TEST(Adopt, FailsOnceThenTheStateIsStreamed) {
  Bench bench = AdoptBench();
  Hold(bench, 1, 5);
  bench.hold = Phase::kRepair;
  bench.Exit(1);
  ASSERT_EQ(bench.core.phase(), Phase::kRepair);
  bench.hold.reset();
  bench.Say(1, PhaseDone{Phase::kRepair, StatusCode::kNotFound, "the launcher holds nothing", 0, {}});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_FALSE(bench.Orders(Phase::kRepair, 1).back().moves[0].adopt);
}

// It has what it was to adopt, and could not send it to one that is gone.
TEST(Adopt, IsNoLessHeldWhereItsReceiverDies) {
  for (const StatusCode code : {StatusCode::kCommFailure, StatusCode::kCancelled, StatusCode::kInternal}) {
    Bench bench = AdoptBench();
    Hold(bench, 1, 5);
    bench.hold = Phase::kLock;
    bench.Exit(1);
    bench.Say(3, FaultReport{FaultKind::kMemoryHigh, "double bit error", {}, Step(6), false, bench.now});
    bench.hold = Phase::kRepair;
    for (int r : {0, 2, 3}) bench.Say(r, LockReply{GateState::kCommitted, Step(5), r != 3});
    bench.Say(1, LockReply{GateState::kCommitted, Step(), false});
    ASSERT_EQ(bench.core.phase(), Phase::kRepair);
    bench.Say(1, PhaseDone{Phase::kRepair, code, "link closed", 0, {}});
    EXPECT_EQ(bench.member(1).trust.held().has_value(), code != StatusCode::kInternal) << StatusCodeName(code);
  }
}

// Ranks 1 and 3 held one shard at step 5; what a launcher has is of step 4.
TEST(Adopt, AnOlderStepThatIsHeldIsGoneBackToWhereNothingNewerIsLeft) {
  Bench bench = AdoptBench();
  for (int r : {0, 1}) Hold(bench, r, 4);
  bench.hold = Phase::kRollback;
  bench.Exit(0);
  bench.Exit(1);
  ASSERT_EQ(bench.core.phase(), Phase::kRollback) << "both have their state from their replicas";
  bench.hold = Phase::kLock;
  bench.Exit(3, "killed by SIGSEGV");
  bench.Say(1, FaultReport{FaultKind::kMemoryHigh, "double bit error", {}, Step(6), false, bench.now});
  bench.hold.reset();
  for (int r : {0, 1, 2}) bench.Say(r, LockReply{GateState::kCommitted, Step(5), r != 1});
  bench.Say(3, LockReply{GateState::kCommitted, Step(), false});  // its replacement
  EXPECT_EQ(bench.Ended(), std::nullopt);
  EXPECT_EQ(bench.Killed(), (std::set<int>{0, 1})) << "their launchers hold step 4, which nobody else does";
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(Last(bench).step, Step(4));
}

TEST(Adopt, AReplacementThatDiesBeforeItRunsLeavesWhatItWasToAdopt) {
  Bench bench = AdoptBench();
  Hold(bench, 1, 5);
  const Incarnation first = bench.member(1).incarnation;
  bench.hold = Phase::kVerify;
  bench.Exit(1);
  ASSERT_EQ(bench.core.phase(), Phase::kVerify);
  bench.hold.reset();
  bench.Feed(StateHeld{Rank(1), HeldState{first, Step(5), true}});  // its launcher still has it
  bench.Exit(1);
  EXPECT_EQ(Last(bench).rung, Rung::kAdopt);
}

TEST(Adopt, WhatWasInDoubtWhenItsProcessDiedStaysSo) {
  Bench bench = AdoptBench();
  const Incarnation first = bench.member(1).incarnation;
  bench.hold = Phase::kRepair;
  bench.Say(1, FaultReport{FaultKind::kMemoryHigh, "double bit error", {}, Step(6), false, bench.now});
  ASSERT_EQ(bench.core.phase(), Phase::kRepair);
  bench.hold.reset();
  bench.Feed(StateHeld{Rank(1), HeldState{first, Step(5), true}});
  bench.Exit(1);
  bench.Feed(StateHeld{Rank(1), HeldState{first, Step(5), true}});
  EXPECT_EQ(Last(bench).rung, Rung::kRespawn);
}

TEST(Adopt, WaitsForTheWordOfALauncherWhereAShardMayBeHeldByNobodyElse) {
  Bench bench = AdoptBench();
  bench.silent = {1, 3};
  bench.mute = {1, 3};
  bench.replacements_come = false;
  bench.Pass(bench.core.policy().silence + std::chrono::milliseconds(50));
  ASSERT_EQ(bench.core.phase(), Phase::kLock) << "both copies of a shard are gone, and their processes not reaped yet";
  EXPECT_TRUE(bench.core.WaitsAreBounded());
  bench.mute.clear();
  for (int r : {1, 3}) {
    bench.Feed(StateHeld{Rank(r), HeldState{Incarnation(1), Step(5), true}});
    bench.Feed(ProcessExited{Rank(r), Incarnation(1), "killed by SIGKILL", std::nullopt});
  }
  EXPECT_EQ(bench.core.incident()->rung, Rung::kAdopt);
}

TEST(Adopt, DoesNotWaitForThatWordForEver) {
  Bench bench = AdoptBench();
  bench.silent = {1, 3};
  bench.mute = {1, 3};
  bench.replacements_come = false;
  bench.Pass(bench.core.policy().silence + std::chrono::seconds(2));
  ASSERT_TRUE(bench.Ended().has_value());
}

TEST(Adopt, NeedsARespawn) {
  Bench bench = AdoptBench(/*max_respawns=*/0);
  Hold(bench, 1, 5);
  bench.Exit(1);
  EXPECT_NE(Last(bench).rung, Rung::kAdopt);
}

}  // namespace
}  // namespace kintsugi::core
