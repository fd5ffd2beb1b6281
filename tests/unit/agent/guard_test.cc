// The trainer's thread between passes of its loop: what comes next, that a loop which was entered is left once, and that
// nothing of the trainer's is called once the run is over.
#include "runtime/agent/guard.h"

#include "tests/unit/agent/whole_agent.h"

namespace kintsugi {
namespace {

using core::Phase;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class GuardOfAnAgent : public GuardedAgent {
 protected:
  // Within the loop from step 4 on, asked to pause behind step 5, and there.
  void StandAtSavePoint() {
    EnterLoop(4);
    ASSERT_TRUE(trainer.steps.Begin(Step(5)).ok());
    Tell(core::PauseAt{Step(5)});
    Settle();
    shared.gate.MoveTo(GateState::kCommitted, Step(5));
    EXPECT_EQ(trainer.steps.Begin(Step(6)).code(), StatusCode::kInterrupted) << "tasks are pulled there";
    ASSERT_EQ(trainer.position.at(), TrainerAt::kAtSavePoint);
    Settle();
  }
};

TEST_F(GuardOfAnAgent, SaysThatItIsReadyAndWaits) {
  BeginGuard();
  EXPECT_THAT(All<core::Ready>(), SizeIs(1));
  EXPECT_EQ(Next().kind, TaskKind::kNothing);
  EXPECT_TRUE(shared.gate.Word().locked) << "nothing passes a gate before the first release";
}

TEST_F(GuardOfAnAgent, BeginsOnceAndWithStateThatIsDeclared) {
  EXPECT_EQ(trainer.guard.Begin(true).code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(trainer.guard.Begin(true).message(), HasSubstr("SetReplicaLayout"));
  EXPECT_FALSE(shared.registered.begun());
  BeginGuard();
  EXPECT_THAT(trainer.guard.Begin(true).message(), HasSubstr("twice"));
}

TEST_F(GuardOfAnAgent, EntersTheLoopWhereAllRanksStand) {
  BeginGuard();
  EnterLoop(4);
  EXPECT_FALSE(shared.gate.Word().locked);
  EXPECT_EQ(trainer.position.at(), TrainerAt::kInLoop);
  const Result<GuardTask> early = trainer.guard.NextTask(SteadyClock::SteadyNow());
  ASSERT_FALSE(early.ok());
  EXPECT_THAT(early.status().message(), HasSubstr("LeaveLoop comes first"));
}

TEST_F(GuardOfAnAgent, LeavesALoopOnce) {
  BeginGuard();
  EXPECT_EQ(trainer.guard.LeaveLoop(Status::Ok(), LoopEnd::kStatus, "").code(), StatusCode::kFailedPrecondition);
  EnterLoop(4);
  EXPECT_EQ(trainer.guard.LeaveLoop(Status::Ok(), LoopEnd::kRefused, "").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(trainer.position.at(), TrainerAt::kInLoop) << "a call that is refused changes nothing";
  ASSERT_TRUE(trainer.guard.LeaveLoop(Status::Ok(), LoopEnd::kStatus, "").ok());
  EXPECT_EQ(trainer.guard.LeaveLoop(Status::Ok(), LoopEnd::kStatus, "").code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(All<core::Finished>(), SizeIs(1));
}

TEST_F(GuardOfAnAgent, ForgetsWhatTheLoopWasBusyWithAsItIsEnteredAnew) {
  BeginGuard();
  EnterLoop(4);
  ASSERT_TRUE(trainer.activities.Begin(Activity::kEval, 1h).ok());
  ASSERT_TRUE(trainer.guard.LeaveLoop({StatusCode::kInternal, "planted"}, LoopEnd::kThrew, "").ok());
  Tell(core::LockOrder{}, Generation(2));
  Tell(core::ResumeOrder{Step(4)}, Generation(2));
  ASSERT_EQ(Next().kind, TaskKind::kLoop);
  EXPECT_EQ(trainer.activities.now(), Activity::kNone);
  EXPECT_EQ(shared.activity_clock.Read().deadline, TimePoint::Max());
  EXPECT_TRUE(trainer.steps.Begin(Step(5)).ok()) << "the step is this pass's own";
}

TEST_F(GuardOfAnAgent, GoesOnWhereTheLoopStandsAfterASavePoint) {
  BeginGuard();
  StandAtSavePoint();
  const auto points = All<core::SavePoint>();
  ASSERT_THAT(points, SizeIs(1));
  EXPECT_EQ(points[0].step, Step(5));
  ASSERT_EQ(Order(Of(Phase::kDump, 5)).kind, TaskKind::kSave);
  ASSERT_TRUE(trainer.tasks.Finish(Status::Ok()).ok());
  EXPECT_EQ(trainer.position.at(), TrainerAt::kAtSavePoint) << "a task leaves the thread where it was";
  Tell(core::ContinueOrder{});
  const GuardTask task = Next();
  EXPECT_EQ(task.kind, TaskKind::kContinue);
  EXPECT_EQ(task.step, Step(5));
  EXPECT_EQ(trainer.position.at(), TrainerAt::kInLoop);
  EXPECT_EQ(shared.inbox.pause_at(), 0u) << "the pause is behind it";
}

TEST_F(GuardOfAnAgent, UnwindsTheLoopOnceThatIsReleasedFromASavePoint) {
  BeginGuard();
  StandAtSavePoint();
  Tell(core::LockOrder{}, Generation(2));
  Tell(core::ResumeOrder{Step(5)}, Generation(2));
  const GuardTask task = Next();
  EXPECT_EQ(task.kind, TaskKind::kUnwind);
  EXPECT_EQ(task.step, Step(5));
  ASSERT_TRUE(trainer.guard.LeaveLoop({StatusCode::kInterrupted, "unwound"}, LoopEnd::kStatus, "").ok());
  Settle();
  EXPECT_THAT(All<core::Parked>(), IsEmpty()) << "what comes of the unwinding is told to nobody";
  EXPECT_THAT(All<core::FaultReport>(), IsEmpty());
  const GuardTask again = Next();
  EXPECT_EQ(again.kind, TaskKind::kLoop);
  EXPECT_EQ(again.step, Step(5));
}

TEST_F(GuardOfAnAgent, UnwindsTheLoopBeforeARunEndsAtASavePoint) {
  BeginGuard();
  StandAtSavePoint();
  Tell(core::EndOrder{75, "saved, and to be resumed"});
  EXPECT_EQ(Next().kind, TaskKind::kUnwind);
  ASSERT_TRUE(trainer.guard.LeaveLoop({StatusCode::kInterrupted, "unwound"}, LoopEnd::kStatus, "").ok());
  const GuardTask end = Next();
  EXPECT_EQ(end.kind, TaskKind::kEnded);
  EXPECT_EQ(end.text, "saved, and to be resumed");
  EXPECT_EQ(trainer.guard.exit_code(), 75);
}

TEST_F(GuardOfAnAgent, CallsNothingOfTheTrainersOnceTheEndIsTold) {
  Register();
  Handle(HandlerKind::kStop, [](HandlerContext&, void* self) {
    ++static_cast<GuardedAgent*>(self)->calls;
    return Status::Ok();
  });
  CarryOutAll();
  ASSERT_TRUE(trainer.guard.Begin(true).ok());
  opened = true;
  EnterLoop(4);
  ASSERT_TRUE(trainer.guard.LeaveLoop(Status::Ok(), LoopEnd::kStatus, "").ok());
  Tell(core::EndOrder{0, "all have finished"});
  ASSERT_EQ(Next().kind, TaskKind::kEnded);
  on.stop.AwaitIdle();
  const int before = calls;
  EXPECT_LE(before, 1) << "for good, once";
  Look([this] {
    on.stop.StopForGood();
    on.stop.Stop({});
  });
  on.stop.AwaitIdle();
  EXPECT_EQ(calls, before);
  EXPECT_THAT(trainer.guard.NextTask(SteadyClock::SteadyNow()).status().message(), HasSubstr("past the end"));
}

// ---- Run -------------------------------------------------------------------------------------------------------------

class RunOfAnAgent : public GuardedAgent {
 protected:
  // Released as soon as the guard is ready; ended as soon as the loop has told what is `last`.
  template <typename Last>
  void Drive(core::EndOrder end) {
    Register();
    CarryOutAll();
    Look([this, end] {
      actor.on_sent = [this, end](const core::AgentMessage& message) {
        if (std::holds_alternative<core::Ready>(message)) Tell(core::ResumeOrder{Step(4)});
        if (std::holds_alternative<Last>(message)) Tell(end);
      };
    });
    opened = true;
  }
  static Status Loop(Step step, void* self) {
    auto& run = *static_cast<RunOfAnAgent*>(self);
    run.entered.push_back(step);
    return run.loop();
  }
  Status Run() { return trainer.guard.Run(Loop, this); }

 public:
  std::vector<Step> entered;
  std::function<Status()> loop = [] { return Status::Ok(); };
};

TEST_F(RunOfAnAgent, IsOkWhereAllHaveFinished) {
  Drive<core::Finished>({0, "all have finished"});
  Handle(HandlerKind::kExit, [](HandlerContext& call, void* self) {
    EXPECT_EQ(call.step, Step(4));
    EXPECT_FALSE(call.cancel->cancelled());
    ++static_cast<GuardedAgent*>(self)->calls;
    return Status(StatusCode::kInternal, "last words that fail are a line in the log");
  });
  EXPECT_TRUE(Run().ok());
  EXPECT_THAT(entered, ElementsAre(Step(4)));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(trainer.guard.exit_code(), 0);
}

TEST_F(RunOfAnAgent, SaysWhyItWasEnded) {
  Drive<core::FaultReport>({1, "rank 0 failed too often"});
  loop = [] { return Status(StatusCode::kInternal, "planted"); };
  const Status ended = Run();
  EXPECT_EQ(ended.code(), StatusCode::kEnded);
  EXPECT_EQ(ended.message(), "rank 0 failed too often");
  EXPECT_EQ(trainer.guard.exit_code(), 1);
}

TEST_F(RunOfAnAgent, TakesWhatIsThrownForAFaultOfItsRank) {
  Drive<core::FaultReport>({1, "it ends"});
  loop = []() -> Status { throw std::runtime_error("planted"); };
  EXPECT_EQ(Run().code(), StatusCode::kEnded);
  const auto faults = All<core::FaultReport>();
  ASSERT_THAT(faults, SizeIs(1));
  EXPECT_EQ(faults[0].kind, FaultKind::kException);
  EXPECT_THAT(faults[0].text, HasSubstr("planted"));
}

TEST_F(RunOfAnAgent, TakesAnythingElseThatIsThrownToo) {
  Drive<core::FaultReport>({1, "it ends"});
  loop = []() -> Status { throw 7; };
  EXPECT_EQ(Run().code(), StatusCode::kEnded);
  EXPECT_THAT(All<core::FaultReport>().at(0).text, HasSubstr("no std::exception"));
}

TEST_F(RunOfAnAgent, NeedsALoopAndItsHandlers) {
  EXPECT_EQ(trainer.guard.Run(nullptr, nullptr).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(shared.registered.SetLayout(0, {Rank(0)}, 1).ok());
  const Status lacks = Run();
  EXPECT_EQ(lacks.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(lacks.message(), HasSubstr("'stop'"));
  EXPECT_FALSE(shared.registered.begun());
}

TEST_F(RunOfAnAgent, CarriesTasksOutAtASavePointAndComesBackIntoTheLoop) {
  Drive<core::Finished>({0, "all have finished"});
  Handle(HandlerKind::kSave, [](HandlerContext& call, void* self) {
    EXPECT_EQ(call.step, Step(5));
    ++static_cast<GuardedAgent*>(self)->calls;
    return Status::Ok();
  });
  shared.self.join.save_every = 5;
  Look([this] {
    actor.on_sent = [this, before = actor.on_sent](const core::AgentMessage& message) {
      before(message);
      if (std::holds_alternative<core::SavePoint>(message)) Tell(Of(Phase::kDump, 5));
      if (std::holds_alternative<core::PhaseDone>(message)) Tell(core::ContinueOrder{});
    };
  });
  loop = [this] {
    KINTSUGI_RETURN_IF_ERROR(trainer.steps.Begin(Step(5)));
    shared.gate.MoveTo(GateState::kCommitted, Step(5));
    return trainer.steps.Begin(Step(6));
  };
  EXPECT_TRUE(Run().ok());
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(entered, SizeIs(1)) << "the loop stood there, and was not left";
}

}  // namespace
}  // namespace kintsugi
