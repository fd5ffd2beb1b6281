// Processes, Faults, RunEnd: who lives, what is told as broken, how a run ends.
#include "runtime/core/faults.h"

#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "tests/unit/core/ground.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

// ---- Processes ---------------------------------------------------------------------------------------------------

TEST(Processes, WhatWasOfADeadProcessAloneIsForgottenWithIt) {
  Ground ground;
  ground.Train();
  Member& member = ground.member(1);
  member.finished = Step(9);
  member.handler_failures = 3;
  member.save_failed = true;
  ground.processes.MarkDead(Rank(1));
  EXPECT_EQ(member.life, Life::kDead);
  EXPECT_FALSE(member.finished || member.save_failed || member.parked);
  EXPECT_EQ(member.handler_failures, 0);
  EXPECT_TRUE(member.trust.fresh() && member.trust.needs_repair());
  EXPECT_EQ(member.unconfirmed, Incarnation(1)) << "nobody has seen its end yet";
}

TEST(Processes, RespawnsHaveABudgetAndEndWithAStopOrWithoutHope) {
  Policy policy = Ground::FourRanks();
  policy.max_respawns = 1;
  Ground ground(policy);
  ground.Train();
  ground.processes.Respawn(Rank(0));
  EXPECT_TRUE(ground.board.silent()) << "it lives";
  ground.processes.MarkDead(Rank(0));
  ground.processes.Respawn(Rank(0));
  ASSERT_EQ(Ground::Of<SpawnProcess>(ground.Take()).size(), 1u);
  EXPECT_EQ(ground.member(0).incarnation, Incarnation(2));
  ground.processes.MarkDead(Rank(0));
  ground.processes.Respawn(Rank(0));
  EXPECT_EQ(ground.member(0).life, Life::kDead) << "its budget is spent";
  ground.board.course.leaving = true;
  ground.processes.MarkDead(Rank(1));
  ground.processes.Respawn(Rank(1));
  EXPECT_EQ(ground.member(1).life, Life::kDead) << "nothing is repaired any more";
  ground.board.course.leaving = false;
  for (int i = 0; i < 3; ++i) ground.repeats.Died(Rank(2), Step(5), "killed");
  ASSERT_FALSE(ground.repeats.hopeless().empty());
  ground.processes.Respawn(Rank(1));
  EXPECT_TRUE(ground.board.silent());
}

TEST(Processes, WithoutALauncherARankIsAbsentUntilItComesByItself) {
  Policy policy = Ground::FourRanks();
  policy.can_spawn = false;
  Ground ground(policy);
  ground.Train();
  ground.processes.MarkDead(Rank(0));
  ground.processes.Respawn(Rank(0));
  EXPECT_EQ(ground.member(0).life, Life::kAbsent);
  EXPECT_TRUE(ground.board.silent());
}

TEST(Processes, ASecondProcessOfALivingRankIsNeverStarted) {
  Ground ground;
  ground.Train();
  EXPECT_THROW(ground.processes.StartNext(Rank(0)), CheckFailure);
}

TEST(Processes, AWarmProcessTakesThePlaceAndIsOneLess) {
  Ground ground;
  ground.Train();
  ground.processes.TellSpares({Rank(0), 4, 1});
  for (int r : {0, 1}) {
    ground.processes.MarkDead(Rank(r));
    ground.processes.StartNext(Rank(r));
  }
  EXPECT_TRUE(ground.member(0).from_spare);
  EXPECT_FALSE(ground.member(1).from_spare);
}

TEST(Processes, KillsOnlyWhatExists) {
  Ground ground;
  ground.Train();
  ground.processes.Kill(Rank(0), "given up");
  EXPECT_THROW(ground.processes.Kill(Rank(0), "and again"), CheckFailure) << "its end may have been seen meanwhile";
  ground.board.members.SetLife(ground.member(1), Life::kAbsent);
  ground.processes.Kill(Rank(1), "it never came");
  const auto killed = Ground::Of<KillProcess>(ground.Take());
  ASSERT_EQ(killed.size(), 1u);
  EXPECT_EQ(killed[0].incarnation, Incarnation(1));
}

TEST(Processes, MemoryOfARankThatWasInDoubtIsNotHeld) {
  Ground ground;
  ground.Train();
  const HeldState held{.of = Incarnation(1), .step = Step(5), .clean = true};
  ground.processes.TellHeld({Rank(4), held});  // outside of the world: nothing happens
  ground.member(1).trust.Tear();
  ground.processes.MarkDead(Rank(1));
  ground.processes.TellHeld({Rank(1), held});
  EXPECT_FALSE(ground.member(1).trust.held());
}

TEST(Processes, WhoIsMissingWhileOthersComeBackIsNotLostYet) {
  Ground ground;
  ground.Train();
  const Duration window = ground.board.policy.ConfirmWindow();
  ground.processes.SeeClosed(Rank(0));
  ground.processes.SeeClosed(Rank(1));
  ground.Pass(window - 1ms);
  EXPECT_TRUE(ground.processes.Lost().empty());
  ground.processes.SeeJoin(Rank(1));
  ground.Pass(1ms);
  EXPECT_TRUE(ground.processes.Lost().empty()) << "rank 1 has just come back: there is a queue";
  ground.Pass(window);
  EXPECT_EQ(ground.processes.Lost(), std::vector<Rank>{Rank(0)});
}

TEST(Processes, AQueueOfThoseThatComeBackIsNotWaitedForForEver) {
  Ground ground;
  ground.Train();
  const Duration window = ground.board.policy.ConfirmWindow();
  ground.processes.SeeClosed(Rank(0));
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(ground.processes.Lost().empty()) << i;
    ground.processes.SeeClosed(Rank(1));
    ground.Pass(window);
    ground.processes.SeeJoin(Rank(1));
  }
  EXPECT_EQ(ground.processes.Lost(), std::vector<Rank>{Rank(0)});
}

TEST(Processes, SilenceIsToldOnceAndNotOfAConnectionThatIsAway) {
  Ground ground;
  ground.Train();
  for (int r = 0; r < 4; ++r) ground.processes.SeeJoin(Rank(r));
  ground.processes.SeeClosed(Rank(3));
  std::vector<Rank> silent;
  for (uint64_t i = 1; i <= 15; ++i) {
    ground.Pass(100ms);
    ground.processes.SeeBeat(Rank(2), i);
    for (Rank rank : ground.processes.Silent()) silent.push_back(rank);
    if (i < 10) {
      EXPECT_TRUE(silent.empty()) << i;
    }
  }
  EXPECT_EQ(silent, (std::vector<Rank>{Rank(0), Rank(1)}));
}

// ---- Faults ------------------------------------------------------------------------------------------------------

TEST(Faults, ALostConnectionOpensConfirmForOneWindowAndMayHeal) {
  Ground ground;
  ground.Train();
  ground.faults.Suspect(Rank(2), FaultKind::kConnectionLost, "closed", ground.board.now());
  EXPECT_EQ(ground.board.phase(), Phase::kConfirm);
  EXPECT_EQ(ground.board.deadline(), ground.board.now() + ground.board.policy.ConfirmWindow());
  EXPECT_EQ(ground.board.incident.evidence(), Evidence::kLost);
  EXPECT_TRUE(ground.next.reasons.empty()) << "nobody is locked for a suspicion";
  ground.faults.Suspect(Rank(3), FaultKind::kCommError, "a collective failed", ground.board.now());
  EXPECT_EQ(ground.board.incident.evidence(), Evidence::kSuspected) << "coming back does not heal that";
  ground.faults.Suspect(Rank(3), FaultKind::kConnectionLost, "closed", ground.board.now());
  EXPECT_EQ(ground.board.incident.evidence(), Evidence::kSuspected);
}

TEST(Faults, ASuspicionWithinAnIncidentIsPartOfIt) {
  Ground ground;
  ground.Train();
  ground.GoTo(Phase::kRebuild);
  ground.faults.Suspect(Rank(2), FaultKind::kCommError, "a group broke", ground.board.now());
  EXPECT_EQ(ground.board.phase(), Phase::kRebuild);
  EXPECT_TRUE(Ground::Of<Transition>(ground.Take()).empty());
}

TEST(Faults, AFaultReplacesItsRankAndLocksAllOthers) {
  Ground ground;
  ground.Train();
  ground.processes.MarkDead(Rank(1));
  ground.faults.Fault(Rank(1), FaultKind::kProcessExit, "killed", ground.board.now());
  EXPECT_EQ(ground.next.reasons, std::vector<std::string>{"killed"});
  EXPECT_EQ(ground.board.phase(), Phase::kConfirm);
  EXPECT_EQ(ground.board.incident.evidence(), Evidence::kProven);
  EXPECT_EQ(Ground::Of<SpawnProcess>(ground.Take()).size(), 1u);
}

TEST(Faults, WhatAFaultInRunningInterruptsIsAnIncidentOfItsOwn) {
  Ground ground;
  ground.Train();
  ground.OpenIncident();  // not all had resumed
  ground.faults.Record(Rank(3), FaultKind::kException, "it threw", ground.board.now());
  EXPECT_EQ(ground.board.incident.id(), 2u);
  ASSERT_EQ(Ground::Of<IncidentClosed>(ground.Take()).size(), 1u);
}

TEST(Faults, RanksThatAreGivenUpTogetherAreOneAttempt) {
  Ground ground;
  ground.Train();
  ground.faults.GiveUp({}, FaultKind::kSilence, ground.board.now(), "nobody");
  EXPECT_TRUE(ground.next.reasons.empty());
  ground.faults.GiveUp({Rank(0), Rank(3)}, FaultKind::kSilence, ground.board.now(), "no sign of life");
  EXPECT_EQ(ground.next.reasons.size(), 1u);
  EXPECT_EQ(ground.board.incident.record().ranks, (std::vector<Rank>{Rank(0), Rank(3)}));
  EXPECT_EQ(Ground::Of<KillProcess>(ground.Take()).size(), 2u);
}

TEST(Faults, OfAnOlderGenerationOnlyDamagedMemoryIsNews) {
  Ground ground;
  ground.Train();
  ground.faults.OnReport(Rank(0), {.kind = FaultKind::kException, .text = "it threw"}, false);
  ground.faults.OnReport(Rank(0), {.kind = FaultKind::kCommError, .text = "it failed"}, false);
  ground.faults.OnReport(Rank(0), {.kind = FaultKind::kStalled, .text = "too long"}, false);
  EXPECT_EQ(ground.board.dropped(), 2u) << "an echo is not even worth a line";
  EXPECT_TRUE(ground.next.reasons.empty());
  ground.faults.OnReport(Rank(0), {.kind = FaultKind::kMemoryHigh, .text = "not to be trusted"}, false);
  EXPECT_EQ(ground.next.reasons.size(), 1u);
  EXPECT_TRUE(ground.member(0).trust.needs_repair());
}

TEST(Faults, NamedTensorsAreRepairedByThemselvesUnlessTheUpdateTouchedThem) {
  Ground ground;
  ground.Train();
  FaultReport low{.kind = FaultKind::kMemoryLow, .text = "two bits", .damaged_keys = {"w"}, .step = Step(6)};
  ground.faults.OnReport(Rank(0), low, true);
  EXPECT_EQ(ground.member(0).trust.damaged_keys(), std::vector<std::string>{"w"});
  low.in_update = true;
  ground.faults.OnReport(Rank(0), low, true);
  EXPECT_TRUE(ground.member(0).trust.needs_repair());
  EXPECT_TRUE(ground.member(0).trust.damaged_keys().empty()) << "more than what was named";
  low.in_update = false;
  ground.faults.OnReport(Rank(0), low, true);
  EXPECT_TRUE(ground.member(0).trust.damaged_keys().empty()) << "the whole shard is in doubt since";
}

TEST(Faults, TheFirstSuspectUpdateStays) {
  Ground ground;
  ground.Train();
  FaultReport high{.kind = FaultKind::kMemoryHigh, .step = Step(9), .suspect_from = Step(7)};
  ground.faults.OnReport(Rank(0), high, true);
  high.suspect_from = Step(8);
  ground.faults.OnReport(Rank(2), high, true);
  EXPECT_EQ(ground.board.plan.suspect_from, Step(7));
}

TEST(Faults, TheThirdDamageAtOneStepCostsTheProcess) {
  Ground ground;
  ground.Train();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ground.member(0).life, Life::kReady) << i;
    ground.faults.OnReport(Rank(0), {.kind = FaultKind::kMemoryHigh, .text = "bits", .step = Step(6)}, true);
  }
  EXPECT_EQ(ground.member(0).life, Life::kStarting);
  EXPECT_EQ(Ground::Of<KillProcess>(ground.Take()).size(), 1u);
}

// ---- RunEnd ------------------------------------------------------------------------------------------------------

TEST(RunEnd, EveryRankIsToldAndNoProcessIsLeftOnItsWay) {
  Ground ground;
  ground.Train();
  ground.processes.MarkDead(Rank(1));
  ground.processes.StartNext(Rank(1));
  ground.processes.MarkDead(Rank(2));
  ground.Take();
  ground.end.End(kExitFailed, "it is over");
  const auto actions = ground.Take();
  EXPECT_EQ(Ground::Sent<EndOrder>(actions).size(), 2u);
  ASSERT_EQ(Ground::Of<KillProcess>(actions).size(), 1u);
  EXPECT_EQ(Ground::Of<KillProcess>(actions)[0].rank, Rank(1));
  EXPECT_THROW(ground.end.End(kExitSuccess, "again"), CheckFailure);
}

TEST(RunEnd, ClosesTheIncidentThatItEnds) {
  Ground ground;
  ground.Train();
  ground.OpenIncident();
  ground.end.End(kExitFailed, "it is over");
  EXPECT_EQ(Ground::Of<IncidentClosed>(ground.Take()).size(), 1u);
  EXPECT_FALSE(ground.board.incident.open());
}

TEST(RunEnd, WithoutASaveTheNewestCheckpointIsWhatThereIsToComeBackTo) {
  Ground ground;
  ground.Train();
  ground.checkpoints.Publish({Step(4), "/saves"});
  ground.end.EndWithoutSave("nothing helps");
  const auto ended = Ground::Of<RunEnded>(ground.Take()).at(0);
  EXPECT_EQ(ended.exit_code, kExitResumable);
  EXPECT_EQ(ended.committed, Step(4));
  EXPECT_EQ(ended.text, "nothing helps; resume from /saves (step 4)");
}

TEST(RunEnd, WithNothingToComeBackToItHasFailedAndBeforeItBeganItNeverStarted) {
  Ground ground;
  ground.Train();
  ground.end.EndWithoutSave("nothing helps");
  EXPECT_EQ(Ground::Of<RunEnded>(ground.Take()).at(0).exit_code, kExitFailed);
  Ground start;
  start.Gather();
  start.end.EndWithoutSave("nothing helps");
  EXPECT_EQ(Ground::Of<RunEnded>(start.Take()).at(0).exit_code, kExitStartup);
}

TEST(RunEnd, WhatComesBackAtOneStepIsNotToBeStartedAgain) {
  Ground ground;
  ground.Train();
  ground.checkpoints.Publish({Step(4), "/saves"});
  for (int i = 0; i < 3; ++i) ground.repeats.Died(Rank(2), Step(5), "killed");
  ground.end.EndWithoutSave("it dies at step 5");
  EXPECT_EQ(Ground::Of<RunEnded>(ground.Take()).at(0).exit_code, kExitFailed);
}

TEST(RunEnd, NoRunIsToBeResumedFromNothing) {
  Ground ground;
  ground.Train();
  EXPECT_THROW(ground.end.End(kExitResumable, "saved"), CheckFailure);
}

TEST(RunEnd, IsToldAgainToWhoMissedIt) {
  Ground ground;
  ground.Train();
  EXPECT_THROW(ground.end.TellAgain(Rank(0)), CheckFailure) << "it has not come";
  EXPECT_THROW(ground.end.EndFinished(42), CheckFailure) << "its ranks are in their loops";
  for (Member& each : ground.board.members) each.finished = Step(5);
  ground.end.EndFinished(42);
  EXPECT_EQ(Ground::Of<RunEnded>(ground.Take()).at(0).final_digest, 42u);
  ground.end.TellAgain(Rank(3));
  const auto told = Ground::Sent<EndOrder>(ground.Take());
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].second.exit_code, kExitSuccess);
}

TEST(Faults, OneThatIsToldOlderThanTheRunsNewestBeginningBeganNow) {
  Ground ground;
  ground.Train();
  ground.board.course.went_on_at = ground.board.now();
  const TimePoint own = ground.board.now() + 1s;
  ground.board.SetNow(ground.board.now() + 2s);
  EXPECT_EQ(ground.faults.BeganAt(own), own);
  EXPECT_EQ(ground.faults.BeganAt(ground.board.course.went_on_at - 60s), ground.board.now())
      << "that stamp is of a fault that was repaired";
}

}  // namespace
}  // namespace kintsugi::core
