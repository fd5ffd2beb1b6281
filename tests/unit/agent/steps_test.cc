// A step of the trainer's loop from its begin to its commit, over the real gate: where each begins, who is let through its
// gate, what becomes of an update whose device is behind, and which calls are refused.
#include "runtime/agent/steps.h"

#include "runtime/agent/updates.h"
#include "tests/unit/agent/whole_agent.h"

namespace kintsugi {
namespace {

using core::Phase;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A device that is as far as the test says.
struct Fence final : DeviceFence {
  Result<bool> IsDone() const override {
    if (!failed.ok()) return failed;
    return done;
  }
  bool done = false;
  Status failed;
};

class StepsOfAnAgent : public GuardedAgent {
 protected:
  // In its loop behind step 4.
  void Loop(GateMode mode = GateMode::kOff, GateFunction function = nullptr) {
    ASSERT_TRUE(shared.registered.SetGate(mode, function, this).ok());
    BeginGuard();
    EnterLoop(4);
    Look([this] { actor.messages.clear(); });
  }
  // Steps through this one.
  void Make(uint64_t step, const DeviceFence* fence = nullptr) {
    ASSERT_TRUE(trainer.steps.Begin(Step(step)).ok());
    ASSERT_TRUE(trainer.updates.Begin(Step(step)).ok());
    ASSERT_TRUE(trainer.updates.End(Step(step), fence).ok());
  }
  core::GateWord word() const { return shared.gate.Word(); }
  Progress place() { return UnpackProgress(shared.page.words().progress.load()); }
  // As soon as the trainer's thread has come to its gate.
  void AtTheGate(std::function<void()> then) {
    Look([this, then = std::move(then)] {
      actor.on_sent = [then](const core::AgentMessage& message) {
        if (std::holds_alternative<core::GateEntered>(message)) then();
      };
    });
  }
  void Meet(uint64_t step, bool exists) {
    core::StopOrder order;
    order.step = Step(step);
    order.step_exists = exists;
    Tell(core::LockOrder{}, Generation(2));
    Tell(order, Generation(2));
  }

 public:
  void LockMeanwhile() {
    Meet(4, true);
    Settle();
  }
};

// ---- begin -----------------------------------------------------------------------------------------------------------

TEST_F(StepsOfAnAgent, BeginInTheirOrderAndOnce) {
  Loop();
  EXPECT_THAT(trainer.steps.Begin(Step(6)).message(), HasSubstr("step 5 is the one to compute"));
  ASSERT_TRUE(trainer.steps.Begin(Step(5)).ok());
  EXPECT_EQ(place().step, 5u);
  EXPECT_THAT(trainer.steps.Begin(Step(5)).message(), HasSubstr("twice"));
  ASSERT_TRUE(trainer.updates.Begin(Step(5)).ok());
  EXPECT_THAT(trainer.steps.Begin(Step(6)).message(), HasSubstr("EndUpdate ends it"));
  ASSERT_TRUE(trainer.updates.End(Step(5), nullptr).ok());
  EXPECT_TRUE(trainer.steps.Begin(Step(6)).ok());
  EXPECT_THAT(All<core::Resumed>(), SizeIs(1)) << "told with the first step of a pass";
  EXPECT_EQ(shared.page.words().resumed_generation.load(), 1u);
}

TEST_F(StepsOfAnAgent, AreOneThreads) {
  Loop();
  ASSERT_TRUE(trainer.steps.Begin(Step(5)).ok());
  Status begun, updated, refreshed;
  std::thread([&] {
    begun = trainer.steps.Begin(Step(5));
    updated = trainer.updates.Begin(Step(5));
    refreshed = trainer.updates.Refresh(Step(4));
  }).join();
  EXPECT_THAT(begun.message(), HasSubstr("BeginStep on a second thread"));
  EXPECT_THAT(updated.message(), HasSubstr("BeginUpdate on a second thread"));
  EXPECT_THAT(refreshed.message(), HasSubstr("RefreshObjects on a second thread"));
  EXPECT_EQ(word().state, GateState::kCommitted);
}

TEST_F(StepsOfAnAgent, SayWhereTheyAreBeforeTheyLookForOrders) {
  Loop();
  (void)shared.gate.Lock();
  EXPECT_EQ(trainer.steps.Begin(Step(5)).code(), StatusCode::kInterrupted);
  EXPECT_EQ(place().step, 5u) << "who looks for a boundary finds it passed";
  EXPECT_EQ(trainer.steps.Poll().code(), StatusCode::kInterrupted);
  EXPECT_THAT(All<core::Resumed>(), IsEmpty());
}

TEST_F(StepsOfAnAgent, StopAtBoundariesThatAreSavedOrCompared) {
  shared.self.join.save_every = 3;
  shared.self.join.verify_every = 7;
  Loop();
  std::vector<uint64_t> stood;
  Make(5);
  for (uint64_t step = 6; step <= 11; ++step) {
    const Status begun = trainer.steps.Begin(Step(step));
    if (begun.code() == StatusCode::kInterrupted) {
      stood.push_back(step - 1);
      Tell(core::ContinueOrder{});
      ASSERT_EQ(Next().kind, TaskKind::kContinue);
    }
    ASSERT_TRUE(trainer.updates.Begin(Step(step)).ok());
    ASSERT_TRUE(trainer.updates.End(Step(step), nullptr).ok());
  }
  EXPECT_THAT(stood, ElementsAre(6, 7, 9));
}

TEST_F(StepsOfAnAgent, DoNotStopAtTheBoundaryFromWhichTheyWereReleased) {
  shared.self.join.save_every = 2;
  Loop();
  EXPECT_TRUE(trainer.steps.Begin(Step(5)).ok()) << "boundary 4 was passed before";
}

TEST_F(StepsOfAnAgent, StopAtTheFirstBoundaryBehindAPauseThatCameLate) {
  Loop();
  Make(5);
  Tell(core::PauseAt{Step(5)});
  const auto acks = Await<core::PauseAck>();
  EXPECT_EQ(acks[0].begun, Step(5)) << "all meet behind the newest step that any has begun";
  EXPECT_EQ(trainer.steps.Begin(Step(6)).code(), StatusCode::kInterrupted);
  EXPECT_EQ(trainer.position.at(), TrainerAt::kAtSavePoint);
}

TEST_F(StepsOfAnAgent, CountTheirCollectivesAndShowTheirPhase) {
  Loop();
  ASSERT_TRUE(trainer.steps.Begin(Step(5)).ok());
  ASSERT_TRUE(trainer.steps.BeginCollective().ok());
  ASSERT_TRUE(trainer.steps.BeginCollective().ok());
  EXPECT_EQ(place().collectives, 2u);
  ASSERT_TRUE(trainer.steps.EnterPhase(Step(5), TrainPhase::kBackward).ok());
  EXPECT_EQ(place().phase, TrainPhase::kBackward);
  EXPECT_EQ(place().collectives, 2u) << "they are the step's";
  EXPECT_EQ(trainer.steps.EnterPhase(Step(7), TrainPhase::kBackward).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(trainer.updates.Begin(Step(5)).ok());
  ASSERT_TRUE(trainer.updates.End(Step(5), nullptr).ok());
  EXPECT_TRUE(trainer.steps.EnterPhase(Step(5), TrainPhase::kUpdate).ok()) << "its parameters are gathered";
  ASSERT_TRUE(trainer.steps.Begin(Step(6)).ok());
  EXPECT_EQ(place().collectives, 0u);
}

// ---- the gate --------------------------------------------------------------------------------------------------------

TEST_F(StepsOfAnAgent, HaveOneUpdateEachInTheirOrder) {
  Loop();
  EXPECT_THAT(trainer.updates.End(Step(5), nullptr).message(), HasSubstr("call BeginUpdate(5) first"));
  EXPECT_EQ(trainer.updates.Begin(Step(6)).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(trainer.updates.Begin(Step(5)).ok());
  EXPECT_EQ(word().state, GateState::kUpdating);
  EXPECT_THAT(trainer.updates.Begin(Step(5)).message(), HasSubstr("numbered one by one"));
  EXPECT_EQ(trainer.updates.End(Step(6), nullptr).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(word().state, GateState::kUpdating) << "a call that is refused changes nothing";
  ASSERT_TRUE(trainer.updates.End(Step(5), nullptr).ok());
  EXPECT_EQ(word().step, Step(5));
}

TEST_F(StepsOfAnAgent, WaitAtTheirGateUntilAllHaveTheirInputs) {
  Loop(GateMode::kControlPlane);
  GateState before = GateState::kCommitted;
  AtTheGate([&] {
    before = word().state;
    Tell(core::GateOpen{Step(5)});
  });
  ASSERT_TRUE(trainer.updates.Begin(Step(5)).ok());
  EXPECT_EQ(before, GateState::kAtGate);
  EXPECT_EQ(word().state, GateState::kUpdating);
  EXPECT_THAT(All<core::GateEntered>(), SizeIs(1));
}

TEST_F(StepsOfAnAgent, AreGivenUpAtTheGateWhereAllMeetBefore) {
  Loop(GateMode::kControlPlane);
  AtTheGate([&] { Meet(4, true); });
  EXPECT_EQ(trainer.updates.Begin(Step(5)).code(), StatusCode::kInterrupted);
  EXPECT_TRUE(word().locked);
  EXPECT_EQ(word().state, GateState::kCommitted);
  EXPECT_EQ(word().step, Step(4));
}

TEST_F(StepsOfAnAgent, GoThroughTheGateWhereAllMeetBehindIt) {
  Loop(GateMode::kControlPlane);
  AtTheGate([&] { Meet(5, true); });
  EXPECT_TRUE(trainer.updates.Begin(Step(5)).ok()) << "another rank is through it already";
  EXPECT_EQ(trainer.updates.End(Step(5), nullptr).code(), StatusCode::kInterrupted);
  EXPECT_TRUE(word().locked);
  EXPECT_EQ(word().state, GateState::kCommitted);
  EXPECT_EQ(word().step, Step(5)) << "it is done, and the loop is left";
}

TEST_F(StepsOfAnAgent, OfAStepThatDoesNotExistAreGivenUp) {
  Loop(GateMode::kControlPlane);
  AtTheGate([&] { Meet(5, false); });
  EXPECT_EQ(trainer.updates.Begin(Step(5)).code(), StatusCode::kInterrupted);
  EXPECT_EQ(word().step, Step(4));
}

TEST_F(StepsOfAnAgent, LeaveTheGateWithTheEndOfTheRun) {
  Loop(GateMode::kControlPlane);
  AtTheGate([&] { Tell(core::EndOrder{1, "another rank failed"}); });
  EXPECT_EQ(trainer.updates.Begin(Step(5)).code(), StatusCode::kInterrupted);
  EXPECT_EQ(word().step, Step(4));
}

TEST_F(StepsOfAnAgent, TellOfAGateOfTheTrainersThatFails) {
  Loop(GateMode::kTrainer, [](Step, void*) { return Status(StatusCode::kCommFailure, "a link broke"); });
  Look([this] {
    actor.on_sent = [this](const core::AgentMessage& message) {
      if (std::holds_alternative<core::FaultReport>(message)) Meet(4, true);
    };
  });
  EXPECT_EQ(trainer.updates.Begin(Step(5)).code(), StatusCode::kInterrupted);
  const auto faults = All<core::FaultReport>();
  ASSERT_THAT(faults, SizeIs(1)) << "else nobody would ever bring the verdict";
  EXPECT_EQ(faults[0].kind, FaultKind::kCommError);
  EXPECT_THAT(faults[0].text, HasSubstr("the gate of step 5: a link broke"));
}

TEST_F(StepsOfAnAgent, DoNotTellOfAGateThatTheStopHandlerAborted) {
  Loop(GateMode::kTrainer, [](Step, void* self) {
    static_cast<StepsOfAnAgent*>(self)->LockMeanwhile();
    return Status(StatusCode::kCommFailure, "aborted");
  });
  EXPECT_EQ(trainer.updates.Begin(Step(5)).code(), StatusCode::kInterrupted);
  EXPECT_THAT(All<core::FaultReport>(), IsEmpty());
}

TEST_F(StepsOfAnAgent, GoThroughAGateOfTheTrainers) {
  Loop(GateMode::kTrainer, [](Step step, void* self) {
    EXPECT_EQ(step, Step(5));
    ++static_cast<StepsOfAnAgent*>(self)->calls;
    return Status::Ok();
  });
  EXPECT_TRUE(trainer.updates.Begin(Step(5)).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(word().state, GateState::kUpdating);
}

// ---- objects -----------------------------------------------------------------------------------------------------------

TEST_F(StepsOfAnAgent, MirrorObjectsBeforeTheGateAndNotForACallThatIsRefused) {
  Mirror();
  Loop();
  object = "before 5";
  EXPECT_FALSE(trainer.updates.Begin(Step(7)).ok());
  EXPECT_THAT(plane->mirrored, IsEmpty()) << "a good step would be pushed out";
  ASSERT_TRUE(trainer.updates.Begin(Step(5)).ok());
  EXPECT_THAT(plane->mirrored, ElementsAre(std::pair(Step(5), std::string("before 5"))));
}

TEST_F(StepsOfAnAgent, RefreshObjectsAtTheStepThatWasCommittedLast) {
  Mirror();
  Loop();
  Make(5);
  object = "read on";
  EXPECT_EQ(trainer.updates.Refresh(Step(4)).code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(plane->refreshed, IsEmpty());
  ASSERT_TRUE(trainer.updates.Refresh(Step(5)).ok());
  EXPECT_THAT(plane->refreshed, ElementsAre(std::pair(Step(5), std::string("read on"))));
  EXPECT_TRUE(trainer.offer.is_ahead_at(Step(5))) << "its partners have not got them";
  ASSERT_TRUE(trainer.steps.Begin(Step(6)).ok());
  ASSERT_TRUE(trainer.updates.Begin(Step(6)).ok());
  EXPECT_FALSE(trainer.offer.is_ahead_at(Step(5)));
  EXPECT_EQ(trainer.updates.Refresh(Step(6)).code(), StatusCode::kFailedPrecondition) << "within an update";
}

// ---- a device that is behind -----------------------------------------------------------------------------------------

TEST_F(StepsOfAnAgent, AreUnderWayUntilTheirDeviceIsDone) {
  Loop();
  Fence fence;
  Make(5, &fence);
  EXPECT_EQ(shared.page.words().device_behind.load(), 5u);
  EXPECT_EQ(shared.gate.Lock().state, GateState::kUpdating) << "who locks now finds it under way";
  shared.gate.Release(Step(5));
  ASSERT_TRUE(trainer.steps.Begin(Step(6)).ok());
  EXPECT_NE(shared.gate.fence(), nullptr) << "a step begins without it";
  fence.done = true;
  ASSERT_TRUE(trainer.updates.Begin(Step(6)).ok());
  EXPECT_EQ(shared.gate.fence(), nullptr);
  EXPECT_EQ(shared.page.words().device_behind.load(), 0u);
}

TEST_F(StepsOfAnAgent, SayAtTheTopOfTheNextThatTheirDeviceIsDone) {
  Loop();
  Fence fence;
  Make(5, &fence);
  fence.done = true;
  ASSERT_TRUE(trainer.steps.Begin(Step(6)).ok());
  EXPECT_EQ(shared.gate.fence(), nullptr) << "a fault in step 6 finds a committed update";
}

TEST_F(StepsOfAnAgent, DoNotBeginAnUpdateBehindOneThatFailed) {
  Loop();
  Fence fence;
  Make(5, &fence);
  fence.failed = {StatusCode::kInternal, "an illegal address"};
  const Status begun = trainer.updates.Begin(Step(6));
  EXPECT_EQ(begun.code(), StatusCode::kInternal);
  EXPECT_THAT(begun.message(), HasSubstr("an illegal address"));
  EXPECT_EQ(word().step, Step(5));
  EXPECT_NE(shared.gate.fence(), nullptr) << "whoever parks tears it";
}

TEST_F(StepsOfAnAgent, StopWaitingForADeviceWhenAnIncidentBegins) {
  Loop();
  Fence fence;
  Make(5, &fence);
  (void)shared.gate.Lock();
  const Status begun = trainer.updates.Begin(Step(6));
  EXPECT_EQ(begun.code(), StatusCode::kInterrupted);
  EXPECT_THAT(begun.message(), HasSubstr("update before this one")) << "it is left there, and not at its gate";
}

TEST_F(StepsOfAnAgent, AreTornWhereTheirDeviceFails) {
  Loop();
  Fence fence;
  Make(5, &fence);
  fence.failed = {StatusCode::kInternal, "an illegal address"};
  const Status settled = trainer.commits.Settle();
  EXPECT_THAT(settled.message(), HasSubstr("update 5: an illegal address"));
  EXPECT_EQ(word().state, GateState::kTorn);
  EXPECT_EQ(word().step, Step(5));
  EXPECT_EQ(shared.gate.fence(), nullptr);
  EXPECT_TRUE(trainer.commits.Settle().ok()) << "told once";
}

TEST_F(StepsOfAnAgent, AreTornWhereTheirDeviceDoesNotComeToAnEnd) {
  shared.self.options.device_limit = 5ms;
  Loop();
  Fence fence;
  Make(5, &fence);
  (void)shared.gate.Lock();
  const Status settled = trainer.commits.Settle();
  EXPECT_EQ(settled.code(), StatusCode::kDeadlineExceeded) << "an incident does not end the wait, the limit does";
  EXPECT_THAT(settled.message(), HasSubstr("limit 5 ms"));
  EXPECT_EQ(word().state, GateState::kTorn);
}

TEST_F(StepsOfAnAgent, AreSavedOnceTheirDeviceIsDone) {
  shared.self.join.save_every = 5;
  Loop();
  Fence fence;
  Make(5, &fence);
  fence.failed = {StatusCode::kInternal, "an illegal address"};
  EXPECT_EQ(trainer.steps.Begin(Step(6)).code(), StatusCode::kInternal);
  EXPECT_THAT(All<core::SavePoint>(), IsEmpty()) << "nobody saves what is of no step";
  EXPECT_EQ(trainer.position.at(), TrainerAt::kInLoop);
}

}  // namespace
}  // namespace kintsugi
