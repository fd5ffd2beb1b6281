#include "tests/unit/core/agent_bench.h"

#include <gtest/gtest.h>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

TEST(Agent, RefusesWhatIsOlderOrMeantForAnother) {
  AgentBench bench;
  bench.Start();
  const auto refused = [&](Header header) {
    const uint64_t before = bench.core.refused();
    EXPECT_TRUE(bench.Do(FromController{header, LockOrder{}}).empty());
    EXPECT_EQ(bench.core.refused(), before + 1);
    EXPECT_FALSE(bench.core.locked());
  };
  refused({Term{2, 9}, Generation(5), Rank(1), Incarnation(2)});
  refused({Term{3, 1}, Generation(3), Rank(1), Incarnation(2)});
  refused({Term{3, 1}, Generation(5), Rank(1), Incarnation(1)});
  refused({Term{3, 1}, Generation(5), Rank(0), Incarnation(2)});
  EXPECT_FALSE(bench.Do(FromController{{Term{4, 2}, Generation(5), Rank(1), Incarnation(2)}, LockOrder{}}).empty());
  EXPECT_TRUE(bench.Order(LockOrder{}, 6).empty()) << "the term is over";
}

TEST(Agent, AnswersLockWithTheWordItFound) {
  AgentBench bench;
  bench.Start();
  EXPECT_EQ(All<LockGate>(bench.Order(LockOrder{}, 5)).size(), 1u);
  const auto replies = Said<LockReply>(bench.Do(GateLocked{{true, GateState::kUpdating, Step(6)}}));
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].state, GateState::kUpdating);
  EXPECT_EQ(replies[0].step, Step(6));
  EXPECT_TRUE(replies[0].valid);
}

TEST(Agent, OffersNoTornState) {
  AgentBench bench;
  bench.Start();
  bench.Order(LockOrder{}, 5);
  EXPECT_FALSE(Said<LockReply>(bench.Do(GateLocked{{true, GateState::kTorn, Step(6)}})).at(0).valid);
}

TEST(Agent, OffersNothingBeforeAReplacementIsRepaired) {
  AgentBench bench(true);
  bench.BeReady();
  bench.Order(LockOrder{}, 5);
  EXPECT_FALSE(Said<LockReply>(bench.Do(GateLocked{Committed(0)})).at(0).valid);
}

TEST(Agent, CountsAnAbandonedGateAsTheStepBefore) {
  AgentBench bench;
  bench.Start();
  bench.Order(LockOrder{}, 5);
  bench.Do(GateLocked{{true, GateState::kAtGate, Step(6)}});
  bench.Order(StopOrder{Step(5), true}, 5);
  const auto parked = Said<Parked>(bench.Do(TrainerParked{Outcome::kInterrupted, {true, GateState::kAtGate, Step(6)}, {}}));
  ASSERT_EQ(parked.size(), 1u);
  EXPECT_EQ(parked[0].step, Step(5));
  EXPECT_EQ(parked[0].state, GateState::kCommitted);
  // In the next attempt too, whatever the word in memory still says.
  bench.Order(LockOrder{}, 6);
  const auto reply = Said<LockReply>(bench.Do(GateLocked{{true, GateState::kAtGate, Step(6)}})).at(0);
  EXPECT_EQ(reply.state, GateState::kCommitted);
  EXPECT_EQ(reply.step, Step(5));
}

TEST(Agent, ItsThreadHasAsLongToComeOutAsWhereItStandsTakes) {
  const StopOrder stop{.step = Step(6), .park_limit = std::chrono::seconds(60), .step_limit = std::chrono::seconds(5)};
  AgentBench bench;
  bench.Start();
  bench.Order(LockOrder{}, 5);
  bench.Do(GateLocked{Committed(6)});
  bench.Order(stop, 5);
  EXPECT_EQ(bench.core.ParkLimit({7, TrainPhase::kBackward, Activity::kNone}), stop.step_limit);
  EXPECT_EQ(bench.core.ParkLimit({7, TrainPhase::kBackward, Activity::kWait}), stop.step_limit);
  EXPECT_EQ(bench.core.ParkLimit({7, TrainPhase::kBackward, Activity::kEval}), stop.park_limit);
  EXPECT_EQ(bench.core.ParkLimit({6, TrainPhase::kBetween, Activity::kNone}), stop.park_limit) << "behind the commit";
  bench.Do(TrainerParked{Outcome::kInterrupted, Committed(6), {}});
  // A handler may take as long as its order says, and never longer than all else.
  for (const Duration limit : {Duration(std::chrono::seconds(11)), Duration(std::chrono::seconds(600)), Duration()}) {
    const uint64_t next = bench.core.generation().value() + 1;
    bench.Order(PhaseOrder{.phase = Phase::kRebuild, .step = Step(6), .limit = limit}, next - 1);
    bench.Order(LockOrder{}, next);
    bench.Order(stop, next);
    EXPECT_EQ(bench.core.ParkLimit({7, TrainPhase::kBackward, Activity::kNone}),
              limit > Duration() ? std::min(limit, stop.park_limit) : stop.park_limit);
    bench.Do(HandlerDone{Generation(next - 1), {.phase = Phase::kRebuild}});
  }
}

TEST(Agent, WithdrawsItsOfferBeforeTheFirstByteAndGivesItBackAfterVerify) {
  for (const std::vector<std::string>& keys : {std::vector<std::string>{}, std::vector<std::string>{"w"}}) {
    AgentBench bench;
    bench.Start();
    bench.Halt(5, Committed(6));
    const auto valid_at = [&](uint64_t generation) {
      bench.Order(LockOrder{}, generation);
      return Said<LockReply>(bench.Do(GateLocked{Committed(6)})).at(0).valid;
    };
    const std::vector<RepairMove> moves = {{0, Rank(1), {Rank(3)}, keys}};
    EXPECT_EQ(All<RunOnTrainer>(bench.Run(Phase::kRepair, 5, 6, moves)).size(), 1u);
    EXPECT_FALSE(valid_at(6)) << "the repair has begun";
    bench.Do(HandlerDone{Generation(5), {.phase = Phase::kRepair}});
    bench.Complete(Phase::kRepair, 6, 6, moves);
    bench.Complete(Phase::kVerify, 6, 6);
    EXPECT_FALSE(valid_at(7)) << "VERIFY has not passed for all";
    bench.Complete(Phase::kRepair, 7, 6, moves);
    bench.Complete(Phase::kVerify, 7, 6);
    EXPECT_EQ(All<SetCommitted>(bench.Run(Phase::kRollback, 7, 6)).at(0).step, Step(6));
    EXPECT_TRUE(valid_at(8));
  }
}

TEST(Agent, KeepsItsOfferWhileItIsASource) {
  AgentBench bench;
  bench.Start();
  bench.Halt(5, Committed(6));
  bench.Run(Phase::kRepair, 5, 6, {{0, Rank(3), {Rank(1)}, {}}});
  bench.Order(LockOrder{}, 6);
  EXPECT_TRUE(Said<LockReply>(bench.Do(GateLocked{Committed(6)})).at(0).valid);
}

TEST(Agent, AReloadWithdrawsEveryOffer) {
  AgentBench bench;
  bench.Start();
  bench.Halt(5, Committed(6));
  bench.Order(PhaseOrder{.phase = Phase::kRepair, .step = Step(4), .rung = Rung::kReload}, 5);
  bench.Order(LockOrder{}, 6);
  EXPECT_FALSE(Said<LockReply>(bench.Do(GateLocked{Committed(6)})).at(0).valid);
}

TEST(Agent, SupersedesAHandlerOfAnOlderGeneration) {
  AgentBench bench;
  bench.Start();
  bench.Halt(5, Committed(6));
  EXPECT_EQ(All<RunOnTrainer>(bench.Run(Phase::kRebuild, 5, 6)).size(), 1u);
  const auto actions = bench.Order(LockOrder{}, 6);
  EXPECT_EQ(All<CancelHandler>(actions).size(), 1u);
  bench.Do(GateLocked{Committed(6)});
  EXPECT_TRUE(All<RunOnTrainer>(bench.Run(Phase::kClean, 6, 6)).empty()) << "the thread is still inside";
  const auto after = bench.Do(HandlerDone{Generation(5), {.phase = Phase::kRebuild}});
  EXPECT_TRUE(Said<PhaseDone>(after).empty()) << "an answer of the old generation";
  ASSERT_EQ(All<RunOnTrainer>(after).size(), 1u);
  EXPECT_EQ(All<RunOnTrainer>(after)[0].order.phase, Phase::kClean);
}

TEST(Agent, AStopFindsAThreadThatIsStillInAHandler) {
  AgentBench bench;
  bench.Start();
  bench.Halt(5, Committed(6));
  bench.Run(Phase::kRebuild, 5, 6);
  bench.Order(LockOrder{}, 6);
  bench.Do(GateLocked{Committed(6)});
  EXPECT_TRUE(Said<Parked>(bench.Order(StopOrder{Step(6), true}, 6)).empty());
  EXPECT_EQ(Said<Parked>(bench.Do(HandlerDone{Generation(5), {.phase = Phase::kRebuild}})).size(), 1u);
}

TEST(Agent, AHandlerThatWasNotUnderWayCannotBeDone) {
  AgentBench bench;
  bench.Start();
  bench.Halt(5, Committed(6));
  EXPECT_THROW(bench.Do(HandlerDone{Generation(5), {.phase = Phase::kRebuild}}), CheckFailure);
  bench.Run(Phase::kRebuild, 5, 6);
  EXPECT_THROW(bench.Do(HandlerDone{Generation(5), {.phase = Phase::kVerify}}), CheckFailure);
  EXPECT_THROW(bench.Do(HandlerDone{Generation(4), {.phase = Phase::kRebuild}}), CheckFailure);
}

TEST(Agent, NobodyIsParkedWhileTheStopHandlerRuns) {
  AgentBench bench;
  bench.Start();
  bench.stop_returns_at_once = false;
  bench.Order(LockOrder{}, 5);
  bench.Do(GateLocked{Committed(6)});
  EXPECT_EQ(All<Interrupt>(bench.Order(StopOrder{Step(6), true}, 5)).size(), 1u);
  EXPECT_TRUE(Said<Parked>(bench.Do(TrainerParked{Outcome::kInterrupted, Committed(6), {}})).empty());
  EXPECT_EQ(Said<Parked>(bench.Do(StopReturned{})).size(), 1u);
  EXPECT_TRUE(Said<Parked>(bench.Do(StopReturned{})).empty()) << "once is enough";
}

TEST(Agent, KnowsWhenItWaitsForATrainerThatTheStopHandlerHasFreed) {
  AgentBench bench;
  bench.Start();
  bench.stop_returns_at_once = false;
  bench.Order(LockOrder{}, 5);
  bench.Do(GateLocked{Committed(6)});
  bench.Order(StopOrder{Step(6), true}, 5);
  EXPECT_FALSE(bench.core.awaits_trainer());
  bench.Do(StopReturned{});
  EXPECT_TRUE(bench.core.awaits_trainer());
  bench.Do(TrainerParked{Outcome::kInterrupted, Committed(6), {}});
  EXPECT_FALSE(bench.core.awaits_trainer());
}

TEST(Agent, SwallowsAnExceptionUnderALockButNeverDamagedMemory) {
  const auto said = [](FaultKind kind, bool locked) {
    AgentBench bench;
    bench.Start();
    if (locked) bench.Order(LockOrder{}, 5);
    return Said<FaultReport>(bench.Do(TrainerParked{Outcome::kFault, Committed(6), {.kind = kind}})).size();
  };
  EXPECT_EQ(said(FaultKind::kException, false), 1u);
  EXPECT_EQ(said(FaultKind::kCommError, false), 1u);
  EXPECT_EQ(said(FaultKind::kException, true), 0u);
  EXPECT_EQ(said(FaultKind::kCommError, true), 0u);
  EXPECT_EQ(said(FaultKind::kMemoryLow, true), 1u);
  EXPECT_EQ(said(FaultKind::kMemoryHigh, true), 1u);
}

TEST(Agent, MemoryThatIsNotToBeTrustedIsNoOffer) {
  AgentBench bench;
  bench.Start();
  bench.Do(FaultSignal{{.kind = FaultKind::kMemoryHigh}});
  bench.Order(LockOrder{}, 5);
  EXPECT_FALSE(Said<LockReply>(bench.Do(GateLocked{Committed(6)})).at(0).valid);
}

TEST(Agent, GoesOnWithDamagedMemoryWhereNobodyKnowsOfItYet) {
  for (const bool damaged : {false, true}) {
    AgentBench bench;
    bench.Start();
    bench.Halt(5, Committed(6));
    if (damaged) bench.Do(FaultSignal{{.kind = FaultKind::kMemoryHigh}});  // its report and the order cross
    const auto released = All<ReleaseTrainer>(bench.Order(ResumeOrder{Step(6)}, 5));
    ASSERT_EQ(released.size(), 1u);
    EXPECT_EQ(released[0].whole, !damaged) << "what is left of it, should it be killed now";
  }
}

TEST(Agent, GoesOnOnlyWhenTold) {
  AgentBench bench;
  bench.Start();
  bench.Halt(5, Committed(6));
  EXPECT_TRUE(bench.core.locked());
  EXPECT_TRUE(All<ReleaseTrainer>(bench.Order(ContinueOrder{}, 5)).empty());
  const auto released = All<ReleaseTrainer>(bench.Order(ResumeOrder{Step(6)}, 5));
  ASSERT_EQ(released.size(), 1u);
  EXPECT_EQ(released[0].step, Step(6));
  EXPECT_FALSE(bench.core.locked());
  EXPECT_EQ(Said<Resumed>(bench.Do(TrainerResumed{})).size(), 1u);
}

TEST(Agent, LocksItsGateWhenTheLockOrderWasLost) {
  AgentBench bench;
  bench.Start();
  EXPECT_EQ(All<LockGate>(bench.Order(StopOrder{Step(6), true}, 5)).size(), 1u);
  EXPECT_TRUE(Said<LockReply>(bench.Do(GateLocked{Committed(6)})).empty()) << "nobody asked";
  EXPECT_TRUE(bench.core.locked());
}

TEST(Agent, AnAnswerOfTheStoreBeginsNoGeneration) {
  AgentBench bench;
  bench.Start();
  EXPECT_EQ(All<StoreAnswered>(bench.Order(StoreReply{1, StatusCode::kCancelled, {}}, 5)).size(), 1u);
  EXPECT_FALSE(bench.core.locked());
  EXPECT_EQ(bench.core.generation(), Generation(4));
}

TEST(Agent, DropsItsPauseAtALock) {
  AgentBench bench;
  bench.Start();
  EXPECT_EQ(All<StorePause>(bench.Order(PauseAt{Step(7)}, 4)).at(0).step, Step(7));
  EXPECT_EQ(Said<PauseAck>(bench.Do(PauseStored{Step(6)})).size(), 1u);
  const auto cleared = All<StorePause>(bench.Order(LockOrder{}, 5));
  ASSERT_EQ(cleared.size(), 1u);
  EXPECT_EQ(cleared[0].step, Step(0));
  EXPECT_TRUE(Said<PauseAck>(bench.Do(PauseStored{Step(6)})).empty()) << "that pause was not asked for";
}

TEST(Agent, KeepsAPauseThatMovedOnWhileItWasParkedAtTheEarlierOne) {
  AgentBench bench;
  bench.Start();
  bench.Order(PauseAt{Step(7)}, 4);
  bench.Do(PauseStored{Step(7)});
  EXPECT_EQ(Said<SavePoint>(bench.Do(TrainerAtSavePoint{Step(7)})).size(), 1u);
  bench.Order(PauseAt{Step(8)}, 4);
  const auto left = bench.Order(ContinueOrder{}, 4);
  EXPECT_EQ(All<ContinueTrainer>(left).size(), 1u);
  EXPECT_TRUE(All<StorePause>(left).empty());
  bench.Do(TrainerAtSavePoint{Step(8)});
  const auto done = bench.Order(ContinueOrder{}, 4);
  EXPECT_EQ(All<StorePause>(done).at(0).step, Step(0));
}

TEST(Agent, ContinuesOnlyATrainerAtASavePoint) {
  AgentBench bench;
  bench.Start();
  bench.Do(TrainerParked{Outcome::kFinished, Committed(9), {}});
  EXPECT_TRUE(bench.Order(ContinueOrder{}, 4).empty());
}

TEST(Agent, AnIncidentFindsATrainerAtItsSavePoint) {
  AgentBench bench;
  bench.Start();
  bench.Do(TrainerAtSavePoint{Step(7)});
  bench.Order(LockOrder{}, 5);
  EXPECT_EQ(Said<LockReply>(bench.Do(GateLocked{Committed(7)})).at(0).step, Step(7));
  const auto stopped = bench.Order(StopOrder{Step(7), true}, 5);
  EXPECT_EQ(Said<Parked>(stopped).at(0).step, Step(7));
  EXPECT_EQ(All<RunOnTrainer>(bench.Run(Phase::kClean, 5, 7)).size(), 1u);
}

TEST(Agent, SaysAgainWhatALostConnectionSwallowed) {
  AgentBench bench;
  bench.Start();
  EXPECT_EQ(Said<Ready>(bench.Do(Connected{})).size(), 1u);
  bench.Do(TrainerAtGate{Step(7)});
  EXPECT_EQ(Said<GateEntered>(bench.Do(Connected{})).at(0).step, Step(7));
  bench.Order(GateOpen{Step(7)}, 4);
  EXPECT_EQ(Said<GateEntered>(bench.Do(Connected{})).at(0).step, Step(7)) << "who took over may not know that it opened";
  bench.Do(TrainerAtSavePoint{Step(7)});
  EXPECT_EQ(Said<SavePoint>(bench.Do(Connected{})).at(0).step, Step(7));
  bench.Order(ContinueOrder{}, 4);
  EXPECT_TRUE(Said<SavePoint>(bench.Do(Connected{})).empty());
  bench.Do(TrainerParked{Outcome::kFinished, Committed(9), {}});
  EXPECT_EQ(Said<Finished>(bench.Do(Connected{})).at(0).step, Step(9));
  bench.Do(FaultSignal{{.kind = FaultKind::kException}});
  bench.Do(FaultSignal{{.kind = FaultKind::kMemoryLow}});
  EXPECT_EQ(Said<FaultReport>(bench.Do(Connected{})).size(), 2u);
  bench.Order(LockOrder{}, 5);
  const auto faults = Said<FaultReport>(bench.Do(Connected{}));
  ASSERT_EQ(faults.size(), 1u) << "an exception belongs to its generation, damaged memory does not";
  EXPECT_EQ(faults[0].kind, FaultKind::kMemoryLow);
  EXPECT_TRUE(Said<Finished>(bench.Do(Connected{})).empty()) << "the incident takes it back";
  EXPECT_TRUE(Said<GateEntered>(bench.Do(Connected{})).empty());
}

// The controller answers a gate that was said twice twice; the rank may stand at its next gate by then.
TEST(Agent, ALateAnswerToAnEarlierGateIsNoAnswerToThisOne) {
  AgentBench bench;
  bench.Start();
  bench.Do(TrainerAtGate{Step(7)});
  EXPECT_EQ(Said<GateEntered>(bench.Do(Connected{})).size(), 1u);
  EXPECT_EQ(All<OpenGate>(bench.Order(GateOpen{Step(7)}, 4)).size(), 1u);
  bench.Do(TrainerAtGate{Step(8)});
  EXPECT_TRUE(All<OpenGate>(bench.Order(GateOpen{Step(7)}, 4)).empty());
  EXPECT_EQ(Said<GateEntered>(bench.Do(Connected{})).at(0).step, Step(8));
  EXPECT_EQ(All<OpenGate>(bench.Order(GateOpen{Step(8)}, 4)).size(), 1u);
}

TEST(Agent, KeepsABoundedNumberOfFaults) {
  AgentBench bench;
  bench.Start();
  for (int i = 0; i < 1000; ++i) bench.Do(FaultSignal{{.kind = FaultKind::kException}});
  EXPECT_LE(Said<FaultReport>(bench.Do(Connected{})).size(), 64u);
}

TEST(Agent, AnswersARepeatedOrderWithoutDoingItTwice) {
  AgentBench bench;
  bench.Start();
  bench.Halt(5, Committed(6));
  bench.Run(Phase::kClean, 5, 6);
  EXPECT_TRUE(bench.Run(Phase::kClean, 5, 6).empty()) << "under way";
  bench.Do(HandlerDone{Generation(5), {.phase = Phase::kClean}});
  const auto again = bench.Run(Phase::kClean, 5, 6);
  EXPECT_TRUE(All<RunOnTrainer>(again).empty());
  EXPECT_EQ(Said<PhaseDone>(again).size(), 1u);
  bench.Order(ResumeOrder{Step(6)}, 5);
  bench.Do(TrainerResumed{});
  const auto resumed = bench.Order(ResumeOrder{Step(6)}, 5);
  EXPECT_TRUE(All<ReleaseTrainer>(resumed).empty());
  EXPECT_EQ(Said<Resumed>(resumed).size(), 1u);
  bench.Do(TrainerAtSavePoint{Step(8)});
  EXPECT_EQ(Said<Resumed>(bench.Order(ResumeOrder{Step(6)}, 5)).size(), 1u) << "wherever the thread has got to";
}

TEST(Agent, SavesAgainAtALaterStepOfTheSameGeneration) {
  AgentBench bench;
  bench.Start();
  for (uint64_t step : {4u, 8u}) {
    bench.Do(TrainerAtSavePoint{Step(step)});
    EXPECT_EQ(All<RunOnTrainer>(bench.Run(Phase::kDump, 4, step)).size(), 1u) << step;
    bench.Do(HandlerDone{Generation(4), {.phase = Phase::kDump}});
    bench.Order(ContinueOrder{}, 4);
  }
}

TEST(Agent, DamageAfterTheDigestsIsNotForgottenByTheRollback) {
  AgentBench bench;
  bench.Start();
  bench.Do(FaultSignal{{.kind = FaultKind::kMemoryHigh}});
  bench.Halt(5, Committed(6));
  bench.Complete(Phase::kVerify, 5, 6);
  bench.Do(FaultSignal{{.kind = FaultKind::kMemoryHigh, .text = "later"}});
  bench.Complete(Phase::kRollback, 5, 6);  // was on its way
  bench.Order(LockOrder{}, 6);
  EXPECT_FALSE(Said<LockReply>(bench.Do(GateLocked{Committed(6)})).at(0).valid);
  const auto faults = Said<FaultReport>(bench.Do(Connected{Term{3, 1}}));
  ASSERT_EQ(faults.size(), 1u) << "what was there before is repaired and proved";
  EXPECT_EQ(faults[0].text, "later");
}

TEST(Agent, TellsOfACheckpointUntilTheRunHasGoneOn) {
  AgentBench bench;
  bench.Start();
  bench.Halt(5, Committed(6));
  bench.Run(Phase::kRename, 5, 6);
  bench.Order(LockOrder{}, 6);  // a fault overtakes the answer
  const HandlerDone done{Generation(5), {.phase = Phase::kRename}, Published{Step(6), "saves"}};
  EXPECT_EQ(Said<Published>(bench.Do(done)).size(), 1u);
  const auto again = bench.Do(Connected{Term{3, 1}});
  ASSERT_EQ(Said<Published>(again).size(), 1u) << "the connection may have taken it along";
  EXPECT_EQ(Said<Published>(again)[0].directory, "saves");
  bench.Order(ResumeOrder{Step(6)}, 6);
  EXPECT_TRUE(Said<Published>(bench.Do(Connected{Term{3, 1}})).empty());
}

TEST(Agent, ListensToNobodyAfterTheEnd) {
  AgentBench bench;
  bench.Start();
  EXPECT_EQ(All<EndTrainer>(bench.Order(EndOrder{75, "saved"}, 4)).at(0).exit_code, 75);
  EXPECT_TRUE(bench.Order(LockOrder{}, 5).empty());
}

}  // namespace
}  // namespace kintsugi::core
