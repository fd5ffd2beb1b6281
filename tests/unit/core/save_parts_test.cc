// The parts of saves: where all ranks park, the gate over the control plane, which checkpoints there are.
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/core/checkpoint_list.h"
#include "runtime/core/control_gate.h"
#include "runtime/core/pause_rounds.h"
#include "runtime/core/pending_save.h"

namespace kintsugi::core {
namespace {

using Pause = PauseRounds::Answer;
using Gate = ControlGate::Answer;

TEST(PauseRounds, AreStoredOnceAllHaveAnsweredAndNobodyIsPast) {
  PauseRounds pause(2);
  EXPECT_FALSE(pause.Awaits(Rank(0)));
  EXPECT_EQ(pause.Take(Rank(0), Step(5)), Pause::kNotAwaited);
  pause.Begin();
  EXPECT_EQ(pause.Arm(Step(5), Crew(2)), Step(5));
  EXPECT_TRUE(pause.Awaits(Rank(0)));
  EXPECT_EQ(pause.Take(Rank(0), Step(5)), Pause::kOthersToCome);
  EXPECT_EQ(pause.Take(Rank(0), Step(9)), Pause::kNotAwaited) << "it has answered";
  EXPECT_EQ(pause.Take(Rank(1), Step(4)), Pause::kStored);
  EXPECT_EQ(pause.at(), Step(5));
}

TEST(PauseRounds, MoveToTheRankThatHadGonePastAndThenAimAhead) {
  PauseRounds pause(2);
  pause.Begin();
  std::vector<uint64_t> ahead;
  Step begun(5);
  pause.Arm(begun, Crew(2));
  for (int round = 0; round < 14; ++round) {
    begun = pause.at().Next();
    EXPECT_EQ(pause.Take(Rank(0), begun), Pause::kOthersToCome);
    EXPECT_EQ(pause.Take(Rank(1), Step(1)), Pause::kOvertaken);
    ahead.push_back(pause.Arm(Step(2), Crew(2)).value() - begun.value());
  }
  EXPECT_EQ(ahead, (std::vector<uint64_t>{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024}));
}

TEST(PauseRounds, ThatWereDroppedRememberNothing) {
  PauseRounds pause(2);
  pause.Begin();
  pause.Arm(Step(5), Crew(2));
  pause.Take(Rank(0), Step(8));
  pause.Drop();
  EXPECT_FALSE(pause.Awaits(Rank(1)));
  pause.Begin();
  EXPECT_EQ(pause.Arm(Step(3), Crew(2)), Step(3)) << "the run went back";
}

TEST(PauseRounds, NeverMoveBackWithinAPause) {
  PauseRounds pause(2);
  pause.Begin();
  pause.Arm(Step(5), Crew(2));
  EXPECT_THROW(pause.Arm(Step(4), Crew(2)), CheckFailure);
  EXPECT_THROW((void)pause.Awaits(Rank(2)), CheckFailure);
}

TEST(PauseRounds, WaitForThoseWhoTakePartAlone) {
  PauseRounds pause(3);
  pause.Arm(Step(5), Crew(3).Without({Rank(1)}));
  EXPECT_FALSE(pause.Awaits(Rank(1)));
  EXPECT_EQ(pause.Take(Rank(1), Step(9)), Pause::kNotAwaited);
  EXPECT_EQ(pause.Take(Rank(0), Step(5)), Pause::kOthersToCome);
  EXPECT_EQ(pause.Take(Rank(2), Step(5)), Pause::kStored);
}

TEST(ControlGate, OpensOnceThoseWhoTakePartHaveEntered) {
  ControlGate gate(3);
  gate.Enter(Rank(0), Step(1));
  gate.Close(Crew(3).Without({Rank(1)}));
  EXPECT_EQ(gate.Enter(Rank(2), Step(1)), Gate::kWait);
  EXPECT_EQ(gate.Enter(Rank(0), Step(1)), Gate::kOpens);
}

TEST(ControlGate, OpensForAllOnceTheLastRankHasEntered) {
  ControlGate gate(2);
  EXPECT_EQ(gate.Enter(Rank(0), Step(3)), Gate::kWait);
  EXPECT_EQ(gate.Enter(Rank(0), Step(3)), Gate::kWait) << "one rank counts once";
  EXPECT_EQ(gate.Enter(Rank(1), Step(3)), Gate::kOpens);
  EXPECT_EQ(gate.Enter(Rank(1), Step(3)), Gate::kOpenAlready);
  EXPECT_EQ(gate.Enter(Rank(1), Step(4)), Gate::kWait);
}

TEST(ControlGate, ThatWasClosedIsEnteredAnew) {
  ControlGate gate(2);
  gate.Enter(Rank(0), Step(3));
  gate.Enter(Rank(1), Step(3));
  gate.Enter(Rank(1), Step(4));
  gate.Close(Crew(2));
  EXPECT_EQ(gate.Enter(Rank(0), Step(3)), Gate::kWait) << "the step is done again";
  EXPECT_EQ(gate.Enter(Rank(1), Step(3)), Gate::kOpens);
  EXPECT_THROW(gate.Enter(Rank(-1), Step(4)), CheckFailure);
}

TEST(ControlGate, WhoHasEnteredALaterOneHasPassedIt) {
  ControlGate gate(3);
  EXPECT_EQ(gate.Enter(Rank(0), Step(4)), Gate::kWait);
  EXPECT_EQ(gate.Enter(Rank(1), Step(3)), Gate::kWait);
  EXPECT_EQ(gate.Enter(Rank(2), Step(4)), Gate::kOpens);
  EXPECT_EQ(gate.newest_open(), Step(3));
  EXPECT_EQ(gate.Enter(Rank(1), Step(4)), Gate::kOpens);
  EXPECT_EQ(gate.newest_open(), Step(4));
}

TEST(ControlGate, ARankThatIsForgottenIsWaitedFor) {
  ControlGate gate(2);
  gate.Enter(Rank(0), Step(3));
  gate.Forget(Rank(0));
  EXPECT_EQ(gate.Enter(Rank(1), Step(3)), Gate::kWait);
  EXPECT_EQ(gate.Enter(Rank(0), Step(3)), Gate::kOpens);
}

TEST(CheckpointList, KnowsTheNewestAndTheNewestThatHoldsNoDamage) {
  CheckpointList list;
  EXPECT_EQ(list.newest(), nullptr);
  EXPECT_EQ(list.NewestBefore({}), nullptr);
  EXPECT_TRUE(list.Publish({Step(4), "d"}));
  EXPECT_TRUE(list.Publish({Step(8), "d"}));
  EXPECT_FALSE(list.Publish({Step(8), "d"})) << "said again";
  EXPECT_EQ(list.newest()->step, Step(8));
  EXPECT_EQ(list.NewestBefore({})->step, Step(8));
  EXPECT_EQ(list.NewestBefore(Step(9))->step, Step(8));
  EXPECT_EQ(list.NewestBefore(Step(8))->step, Step(4));
  EXPECT_EQ(list.NewestBefore(Step(4)), nullptr);
}

TEST(CheckpointList, ForgetsWhatTheRunHasGoneBackFrom) {
  CheckpointList list;
  for (uint64_t step = 1; step <= 4; ++step) list.Publish({Step(step), "d"});
  list.ForgetFrom(Step(3));
  ASSERT_NE(list.newest(), nullptr);
  EXPECT_EQ(list.newest()->step, Step(2));
  list.ForgetFrom(Step(1));
  EXPECT_EQ(list.newest(), nullptr);
}

TEST(CheckpointList, OneThatIsWrittenOverIsTheNewestAgain) {
  CheckpointList list;
  list.Begin({{Step(4), "d"}, {Step(8), "d"}});
  EXPECT_TRUE(list.Publish({Step(4), "d"}));
  EXPECT_EQ(list.newest()->step, Step(4));
  EXPECT_EQ(list.NewestBefore(Step(4)), nullptr);
  list.PutAside({Step(4), "d"}, "torn");
  EXPECT_EQ(list.newest()->step, Step(8));
  EXPECT_EQ(list.damage(), "the checkpoint of step 4 in d cannot be used: torn");
}

TEST(CheckpointList, ForgetsTheOldestWhereThereAreTooMany) {
  CheckpointList list;
  for (uint64_t step = 1; step <= CheckpointList::kMax + 1; ++step) list.Publish({Step(step), "d"});
  EXPECT_EQ(list.NewestBefore(Step(2)), nullptr);
  EXPECT_EQ(list.NewestBefore(Step(3))->step, Step(2));
}

TEST(PendingSave, IsMadeAfterTheIncidentThatInterruptsItAndGivenUpAtTheThird) {
  PendingSave request;
  EXPECT_FALSE(request.Interrupt(false)) << "nobody asked";
  request.Ask();
  for (int incident = 1; incident <= PendingSave::kInterruptionsMax; ++incident) {
    ASSERT_TRUE(request.waits());
    request.Begin();
    EXPECT_TRUE(request.owed());
    EXPECT_EQ(request.Interrupt(false), incident == PendingSave::kInterruptionsMax);
  }
  EXPECT_FALSE(request.waits());
  request.Ask();
  request.Begin();
  EXPECT_FALSE(request.Interrupt(false)) << "another request is counted from the first";
}

TEST(PendingSave, IsNotMadeAfterAnIncidentInWhichTheRunLeaves) {
  PendingSave request;
  request.Ask();
  request.Begin();
  EXPECT_FALSE(request.Interrupt(true));
  EXPECT_FALSE(request.waits());
  EXPECT_FALSE(request.owed());
}

TEST(PendingSave, OneThatComesWhileAnotherIsUnderWayWaitsForItsOwn) {
  PendingSave request;
  request.Ask();
  request.Begin();
  request.Ask();
  request.Answer();
  EXPECT_FALSE(request.owed());
  EXPECT_TRUE(request.waits());
  request.Begin();
  EXPECT_TRUE(request.owed());
  request.Begin();
  EXPECT_FALSE(request.owed()) << "a save that nobody asked for";
}

}  // namespace
}  // namespace kintsugi::core
