// The controller's orders on the trainer's thread: which one is asked for and with what, what comes before and after the
// trainer's part, and that each is answered once.
#include "runtime/agent/tasks.h"

#include "tests/unit/agent/whole_agent.h"

namespace kintsugi {
namespace {

using core::Phase;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TasksOfAnAgent : public GuardedAgent {};

TEST_F(TasksOfAnAgent, AreAskedForByTheirPhase) {
  BeginGuard();
  const std::pair<Phase, TaskKind> all[] = {
      {Phase::kClean, TaskKind::kClean},   {Phase::kRebuild, TaskKind::kRebuildGroup},
      {Phase::kRepair, TaskKind::kRepair}, {Phase::kRollback, TaskKind::kRollback},
      {Phase::kDump, TaskKind::kSave},     {Phase::kRename, TaskKind::kRename}};
  size_t answers = 0;
  for (const auto& [phase, kind] : all) {
    const GuardTask task = Order(Of(phase));
    EXPECT_EQ(task.kind, kind) << core::PhaseName(phase);
    ASSERT_TRUE(task.call) << core::PhaseName(phase);
    EXPECT_EQ(task.step, Step(4));
    EXPECT_THAT(All<core::PhaseDone>(), SizeIs(answers)) << "it is the trainer's turn";
    ASSERT_TRUE(trainer.tasks.Finish(Status::Ok()).ok());
    EXPECT_THAT(All<core::PhaseDone>(), SizeIs(++answers));
    EXPECT_EQ(Answered().phase, phase);
    EXPECT_EQ(Answered().code, StatusCode::kOk);
    EXPECT_EQ(Next().kind, TaskKind::kNothing) << "it is done";
  }
}

TEST_F(TasksOfAnAgent, SayWhatTheControllerSaid) {
  shared.self.options.world_size = 4;
  BeginGuard();
  core::PhaseOrder order = Of(Phase::kRepair, 7);
  order.rung = Rung::kRebuild;
  order.fault_ranks = {Rank(3)};
  order.replaced_ranks = {Rank(3)};
  order.partners = {Rank(1)};
  order.directory = "/saves";
  order.crew = {Rank(0), Rank(2), Rank(3)};
  RepairMove streamed, adopted;
  streamed.destination = Rank(3);
  streamed.sources = {Rank(0)};
  adopted.destination = Rank(2);
  adopted.adopt = true;
  order.moves = {streamed, adopted};
  const HandlerContext& call = *Order(order).call;
  EXPECT_EQ(call.rank, Rank(0));
  EXPECT_EQ(call.world_size, 3) << "so many take part";
  EXPECT_EQ(call.NumberOf(Rank(3)), 2);
  EXPECT_EQ(call.generation, Generation(1));
  EXPECT_EQ(call.step, Step(7));
  EXPECT_EQ(call.rung, Rung::kRebuild);
  EXPECT_THAT(call.fault_ranks, ElementsAre(Rank(3)));
  EXPECT_THAT(call.replaced_ranks, ElementsAre(Rank(3)));
  EXPECT_THAT(call.partners, ElementsAre(Rank(1)));
  EXPECT_EQ(call.directory, "/saves");
  ASSERT_THAT(call.moves, SizeIs(1)) << "what is adopted is the agent's affair";
  EXPECT_EQ(call.moves[0].destination, Rank(3));
  ASSERT_TRUE(call.cancel && call.store);
  EXPECT_FALSE(call.cancel->cancelled());
  ASSERT_TRUE(trainer.tasks.Finish(Status::Ok()).ok());
  order = Of(Phase::kClean);
  EXPECT_EQ(Order(order).call->world_size, 4) << "all take part";
  ASSERT_TRUE(trainer.tasks.Finish(Status::Ok()).ok());
}

TEST_F(TasksOfAnAgent, TellWhatTheTrainerMadeOfThem) {
  BeginGuard();
  GuardTask task = Order(Of(Phase::kRepair));
  task.call->bytes_moved = 12;
  task.call->loaded_step = Step(3);
  task.call->remark = "one file was old";
  task.call->unreached = {{Rank(1), 7}};
  ASSERT_TRUE(trainer.tasks.Finish(Status::Ok()).ok());
  EXPECT_EQ(Answered().bytes_moved, 12u);
  EXPECT_EQ(Answered().loaded, Step(3));
  EXPECT_EQ(Answered().text, "one file was old");
  EXPECT_THAT(Answered().unreached, IsEmpty()) << "it came about";

  task = Order(Of(Phase::kRebuild));
  task.call->unreached = {{Rank(1), 7}};
  task.call->remark = "not told";
  ASSERT_TRUE(trainer.tasks.Finish({StatusCode::kUnavailable, "rank 1 is not reached"}).ok());
  EXPECT_EQ(Answered().code, StatusCode::kUnavailable);
  EXPECT_EQ(Answered().text, "rank 1 is not reached");
  ASSERT_THAT(Answered().unreached, SizeIs(1));
  EXPECT_EQ(Answered().unreached[0].rank, Rank(1));
  EXPECT_THAT(plane->opened, IsEmpty()) << "no channels are opened to a world that failed";
}

TEST_F(TasksOfAnAgent, OpenChannelsOnceTheTrainersGroupsAreThere) {
  BeginGuard();
  (void)Order(Of(Phase::kRebuild));
  EXPECT_THAT(plane->opened, IsEmpty());
  ASSERT_TRUE(trainer.tasks.Finish(Status::Ok()).ok());
  EXPECT_THAT(plane->opened, ElementsAre(Generation(1)));
  plane->answer = {StatusCode::kCommFailure, "a partner is gone"};
  (void)Order(Of(Phase::kRebuild, 5));
  ASSERT_TRUE(trainer.tasks.Finish(Status::Ok()).ok());
  EXPECT_EQ(Answered().code, StatusCode::kCommFailure) << "what the agent fails in fails the task";
}

TEST_F(TasksOfAnAgent, FailByWhatIsThrownAndNeverThrow) {
  Register();
  Handle(HandlerKind::kClean, [](HandlerContext&, void*) -> Status { throw std::runtime_error("planted"); });
  CarryOutAll();
  ASSERT_TRUE(trainer.guard.Begin(true).ok());
  opened = true;
  (void)Order(Of(Phase::kClean));
  EXPECT_TRUE(trainer.tasks.CarryOut().ok()) << "the guard goes on";
  EXPECT_EQ(Answered().code, StatusCode::kInternal);
  EXPECT_THAT(Answered().text, HasSubstr("planted"));
  plane->throws = true;
  (void)Order(Of(Phase::kRebuild));
  EXPECT_TRUE(trainer.tasks.CarryOut().ok());
  EXPECT_EQ(Answered().code, StatusCode::kInternal);
  EXPECT_THAT(Answered().text, HasSubstr("planted in the plane"));
}

TEST_F(TasksOfAnAgent, AreAnsweredByTheAgentAloneWhereDigestsAreCompared) {
  BeginGuard();
  plane->digests = {{0, 77}};
  EXPECT_EQ(Order(Of(Phase::kVerify)).kind, TaskKind::kNothing);
  EXPECT_EQ(Answered().phase, Phase::kVerify);
  EXPECT_EQ(Answered().digests, (std::map<int, uint64_t>{{0, 77}}));
  plane->answer = {StatusCode::kCancelled, "superseded"};
  EXPECT_EQ(Order(Of(Phase::kVerify, 5)).kind, TaskKind::kNothing);
  EXPECT_EQ(Answered().code, StatusCode::kCancelled);
}

TEST_F(TasksOfAnAgent, NameTheHandlerThatLacksUnlessNothingFollowsFromTheState) {
  ASSERT_TRUE(shared.registered.SetLayout(0, {Rank(0)}, 1).ok());
  CarryOutAll();
  ASSERT_TRUE(trainer.guard.Begin(true).ok());
  opened = true;
  (void)Order(Of(Phase::kRollback));
  ASSERT_TRUE(trainer.tasks.CarryOut().ok());
  EXPECT_EQ(Answered().code, StatusCode::kOk) << "nothing follows from the state";
  (void)Order(Of(Phase::kRepair));
  ASSERT_TRUE(trainer.tasks.CarryOut().ok());
  EXPECT_EQ(Answered().code, StatusCode::kFailedPrecondition);
  EXPECT_THAT(Answered().text, HasSubstr("repair"));
}

TEST_F(TasksOfAnAgent, OfAnOlderGenerationAreCancelledAndNotToldOf) {
  BeginGuard();
  const GuardTask old = Order(Of(Phase::kClean));
  ASSERT_EQ(old.kind, TaskKind::kClean);
  Tell(core::LockOrder{}, Generation(2));
  Settle();
  EXPECT_TRUE(old.call->cancel->cancelled()) << "its handler is to return soon";
  Tell(Of(Phase::kClean), Generation(2));
  Settle();
  ASSERT_TRUE(trainer.tasks.Finish({StatusCode::kCancelled, "cancelled"}).ok());
  EXPECT_THAT(All<core::PhaseDone>(), IsEmpty()) << "nobody waits for it any more";
  const GuardTask next = Next();
  ASSERT_EQ(next.kind, TaskKind::kClean);
  EXPECT_EQ(next.call->generation, Generation(2));
  EXPECT_FALSE(next.call->cancel->cancelled());
  ASSERT_TRUE(trainer.tasks.Finish(Status::Ok()).ok());
  EXPECT_THAT(All<core::PhaseDone>(), SizeIs(1));
}

TEST_F(TasksOfAnAgent, ThatWereNotTakenYetAreNoneOnceTheyAreSuperseded) {
  BeginGuard();
  Tell(Of(Phase::kClean));
  Settle();
  Tell(core::LockOrder{}, Generation(2));
  EXPECT_EQ(Next().kind, TaskKind::kNothing);
  EXPECT_EQ(Order(Of(Phase::kClean), Generation(2)).kind, TaskKind::kClean) << "the core knows that the first is over";
  ASSERT_TRUE(trainer.tasks.Finish(Status::Ok()).ok());
}

TEST_F(TasksOfAnAgent, BeginOnceTheStopHandlerHasReturned) {
  Register();
  Handle(HandlerKind::kStop, [](HandlerContext&, void* self) {
    std::this_thread::sleep_for(50ms);
    ++static_cast<GuardedAgent*>(self)->calls;
    return Status::Ok();
  });
  CarryOutAll();
  ASSERT_TRUE(trainer.guard.Begin(true).ok());
  opened = true;
  Settle();
  Tell(core::StopOrder{});
  Settle();
  ASSERT_EQ(Order(Of(Phase::kClean)).kind, TaskKind::kClean);
  EXPECT_EQ(calls, 1) << "what it aborts is what the task destroys";
  ASSERT_TRUE(trainer.tasks.Finish(Status::Ok()).ok());
}

TEST_F(TasksOfAnAgent, AreFinishedAndCarriedOutInTheirTurnAlone) {
  BeginGuard();
  for (const Status& early : {trainer.tasks.Finish(Status::Ok()), trainer.tasks.CarryOut()}) {
    EXPECT_EQ(early.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(early.message(), HasSubstr("parked"));
  }
  (void)Order(Of(Phase::kClean));
  const Result<GuardTask> twice = trainer.guard.NextTask(SteadyClock::SteadyNow());
  ASSERT_FALSE(twice.ok());
  EXPECT_THAT(twice.status().message(), HasSubstr("FinishTask comes first"));
  EXPECT_EQ(trainer.tasks.CutAnew({}).code(), StatusCode::kFailedPrecondition) << "not in rebuild_group";
  ASSERT_TRUE(trainer.tasks.Finish(Status::Ok()).ok());
  EXPECT_EQ(trainer.tasks.Finish(Status::Ok()).code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(All<core::PhaseDone>(), SizeIs(1)) << "answered once";
}

TEST_F(TasksOfAnAgent, TellOfACheckpointOnceItIsVisible) {
  BeginGuard();
  core::PhaseOrder order = Of(Phase::kRename);
  order.directory = "/saves";
  (void)Order(order);
  ASSERT_TRUE(trainer.tasks.Finish({StatusCode::kUnavailable, "no space left"}).ok());
  EXPECT_THAT(All<core::Published>(), IsEmpty());
  order.step = Step(5);
  (void)Order(order);
  ASSERT_TRUE(trainer.tasks.Finish(Status::Ok()).ok());
  const auto published = All<core::Published>();
  ASSERT_THAT(published, SizeIs(1));
  EXPECT_EQ(published[0].step, Step(5));
  EXPECT_EQ(published[0].directory, "/saves");
}

// ---- objects of the step -----------------------------------------------------------------------------------------------

TEST_F(TasksOfAnAgent, KeepObjectsThatAreLiveAndGiveThemToThePartners) {
  Mirror();
  BeginGuard();
  object = "as it begins";
  plane->known[Step(0)] = "not these";
  (void)Order(Of(Phase::kRollback, 0));
  EXPECT_EQ(object, "as it begins") << "a process that begins a run has them live";
  object = "as the handler left it";
  ASSERT_TRUE(trainer.tasks.Finish(Status::Ok()).ok());
  EXPECT_THAT(plane->mirrored, ElementsAre(std::pair(Step(0), std::string("as the handler left it"))));
}

TEST_F(TasksOfAnAgent, PutObjectsBackToTheStepBeforeTheTrainerRollsBack) {
  Mirror();
  BeginGuard();
  EnterLoop(4);
  ASSERT_TRUE(trainer.guard.LeaveLoop({StatusCode::kInternal, "planted"}, LoopEnd::kStatus, "").ok());
  object = "of step 5";
  plane->known[Step(4)] = "of step 4";
  Tell(core::LockOrder{}, Generation(2));
  (void)Order(Of(Phase::kRollback), Generation(2));
  EXPECT_EQ(object, "of step 4");
  ASSERT_TRUE(trainer.tasks.Finish(Status::Ok()).ok());
  EXPECT_EQ(Answered().code, StatusCode::kOk);
  EXPECT_THAT(plane->mirrored, ElementsAre(std::pair(Step(4), std::string("of step 4"))))
      << "partners that were replaced hold nothing of ours yet";
}

TEST_F(TasksOfAnAgent, FailWhereNobodyKnowsTheObjectsOfTheStep) {
  Mirror();
  BeginGuard();
  EnterLoop(4);
  ASSERT_TRUE(trainer.guard.LeaveLoop({StatusCode::kInternal, "planted"}, LoopEnd::kStatus, "").ok());
  object = "of step 5";
  Tell(core::LockOrder{}, Generation(2));
  EXPECT_EQ(Order(Of(Phase::kRollback), Generation(2)).kind, TaskKind::kNothing) << "the trainer has no part in it";
  EXPECT_EQ(Answered().code, StatusCode::kNotFound);
  EXPECT_EQ(object, "of step 5") << "and nothing was touched";
}

TEST_F(TasksOfAnAgent, LeaveObjectsAloneThatACheckpointHasJustBrought) {
  Mirror();
  BeginGuard();
  EnterLoop(4);
  ASSERT_TRUE(trainer.guard.LeaveLoop({StatusCode::kInternal, "planted"}, LoopEnd::kStatus, "").ok());
  object = "loaded";
  plane->known[Step(4)] = "of step 4";
  Tell(core::LockOrder{}, Generation(2));
  core::PhaseOrder order = Of(Phase::kRollback);
  order.rung = Rung::kReload;
  (void)Order(order, Generation(2));
  EXPECT_EQ(object, "loaded");
  ASSERT_TRUE(trainer.tasks.Finish(Status::Ok()).ok());
}

}  // namespace
}  // namespace kintsugi
