// What an agent's parts decide together, with no controller behind them: what becomes of what leaves the trainer's
// loop, what a report of damage does before anybody hears of it, who is given up when a stop takes too long, which
// order for a snapshot is refused, what a repair marks before it writes. The parts are the real ones, wired as an agent
// wires them.
#include "tests/unit/agent/whole_agent.h"

namespace kintsugi {
namespace {

// ---- what leaves the loop -----------------------------------------------------------------------------------------

TEST_F(WholeAgent, LeavesAnUpdateTornThatTheLoopLeft) {
  GoOn(4);
  Stand(5, GateState::kUpdating);
  trainer.parking.LeaveLoop({StatusCode::kInternal, "planted"}, LoopEnd::kThrew, "Error in update");
  const auto faults = All<core::FaultReport>();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, FaultKind::kException);
  EXPECT_TRUE(faults[0].in_update);
  EXPECT_EQ(faults[0].step, Step(5));
  EXPECT_EQ(faults[0].signature, "Error in update");
  EXPECT_EQ(shared.gate.Word().state, GateState::kTorn);
  EXPECT_EQ(shared.gate.Word().step, Step(5));
}

TEST_F(WholeAgent, AbandonsAnUpdateThatWasNotBegun) {
  GoOn(4);
  Stand(5, GateState::kAtGate);
  trainer.parking.LeaveLoop({StatusCode::kInternal, "planted"}, LoopEnd::kThrew, "");
  EXPECT_EQ(shared.gate.Word().state, GateState::kCommitted);
  EXPECT_EQ(shared.gate.Word().step, Step(4)) << "update 5 was not begun";
  const auto faults = All<core::FaultReport>();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_FALSE(faults[0].in_update);
}

TEST_F(WholeAgent, TellsWhoHasFinishedFromWhoHasChangedItsState) {
  GoOn(7);
  trainer.parking.LeaveLoop(Status::Ok(), LoopEnd::kStatus, "");
  auto finished = All<core::Finished>();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].step, Step(7));
  EXPECT_FALSE(finished[0].changed);
  EXPECT_EQ(mark(), StateMark::kWhole);
  trainer.parking.LeaveLoop(Status::Ok(), LoopEnd::kChanged, "");
  finished = All<core::Finished>();
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_TRUE(finished[1].changed);
  EXPECT_EQ(mark(), StateMark::kWriting) << "nobody may take it for the state of step 7";
}

TEST_F(WholeAgent, TakesAnInterruptionForAnEchoUnderALockAlone) {
  GoOn(4);
  Stand(5, GateState::kCommitted);
  trainer.parking.LeaveLoop({StatusCode::kInterrupted, "aborted"}, LoopEnd::kStatus, "");
  const auto faults = All<core::FaultReport>();
  ASSERT_EQ(faults.size(), 1u) << "no incident is in sight: something was aborted under the trainer";
  EXPECT_EQ(faults[0].kind, FaultKind::kCommError);
  (void)shared.gate.Lock();
  trainer.parking.LeaveLoop({StatusCode::kInterrupted, "aborted"}, LoopEnd::kStatus, "");
  EXPECT_EQ(All<core::FaultReport>().size(), 1u) << "the incident is known";
}

TEST_F(WholeAgent, GoesByWhatItsTrainerSaidOfAnError) {
  ASSERT_TRUE(shared.registered.AddFault("ECC", FaultClass::kMemoryError).ok());
  ASSERT_TRUE(shared.registered.AddFault("ring broke", FaultClass::kCommError).ok());
  GoOn(4);
  trainer.parking.LeaveLoop({StatusCode::kInternal, "the ring broke"}, LoopEnd::kThrew, "at");
  EXPECT_EQ(mark(), StateMark::kWhole);
  trainer.parking.LeaveLoop({StatusCode::kInternal, "an ECC error"}, LoopEnd::kThrew, "at");
  trainer.parking.LeaveLoop({StatusCode::kInternal, "wrong order"}, LoopEnd::kRefused, "at");
  const auto faults = All<core::FaultReport>();
  ASSERT_EQ(faults.size(), 3u);
  EXPECT_EQ(faults[0].kind, FaultKind::kCommError);
  EXPECT_EQ(faults[0].signature, "") << "only exceptions are compared";
  EXPECT_EQ(faults[1].kind, FaultKind::kMemoryHigh);
  EXPECT_EQ(mark(), StateMark::kWriting) << "memory that is not to be trusted is nobody's state";
  EXPECT_EQ(faults[2].kind, FaultKind::kRefused);
}

// ---- what is reported ---------------------------------------------------------------------------------------------

TEST_F(WholeAgent, TearsAndMarksBeforeItTellsOfDamage) {
  GoOn(4);
  Stand(5, GateState::kUpdating);
  EXPECT_EQ(trainer.reports.MemoryError({"w"}, "bit", ErrorTime::Now()).code(), StatusCode::kInterrupted);
  EXPECT_EQ(shared.gate.Word().state, GateState::kTorn);
  EXPECT_EQ(mark(), StateMark::kWriting);
  auto faults = All<core::FaultReport>();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, FaultKind::kMemoryLow);
  EXPECT_THAT(faults[0].damaged_keys, ::testing::ElementsAre("w"));
  EXPECT_TRUE(faults[0].in_update);
  trainer.parking.LeaveLoop({StatusCode::kInterrupted, "so it leaves"}, LoopEnd::kStatus, "");
  EXPECT_EQ(All<core::FaultReport>().size(), 1u) << "what leaves the loop after a report is its echo";
}

TEST_F(WholeAgent, RefusesAReportThatNamesNothingOfItsState) {
  EXPECT_EQ(trainer.reports.MemoryError({}, "early", ErrorTime::Now()).code(), StatusCode::kFailedPrecondition);
  GoOn(4);
  const Status unknown = trainer.reports.MemoryError({"v"}, "bit", ErrorTime::Now());
  EXPECT_EQ(unknown.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(unknown.message(), HasSubstr("'v'"));
  EXPECT_EQ(mark(), StateMark::kWhole);
  EXPECT_FALSE(trainer.reports.told());
  EXPECT_TRUE(All<core::FaultReport>().empty());
}

// ---- a repair writes ----------------------------------------------------------------------------------------------

TEST_F(WholeAgent, MarksItsStateBeforeARepairWritesIt) {
  GoOn(4);
  core::PhaseOrder order;
  order.phase = core::Phase::kRepair;
  RepairMove others;
  others.destination = Rank(1);
  order.moves = {others};
  ASSERT_TRUE(trainer.offer.Prepare(order).ok());
  EXPECT_EQ(mark(), StateMark::kWhole) << "it only gives";
  RepairMove own;
  own.destination = Rank(0);
  order.moves.push_back(own);
  ASSERT_TRUE(trainer.offer.Prepare(order).ok());
  EXPECT_EQ(mark(), StateMark::kWriting);
}

TEST_F(WholeAgent, MarksItsStateBeforeARollbackUnlessItIsCutAnew) {
  GoOn(4);
  core::PhaseOrder order;
  order.phase = core::Phase::kRollback;
  order.relayout = true;
  ASSERT_TRUE(trainer.offer.Prepare(order).ok());
  EXPECT_EQ(mark(), StateMark::kWhole) << "what is offered is what was registered before, which nobody writes";
  order.relayout = false;
  ASSERT_TRUE(trainer.offer.Prepare(order).ok());
  EXPECT_EQ(mark(), StateMark::kWriting);
}

TEST_F(WholeAgent, MarksItsStateWhereItIsReadAnewOrHoldsNothingOfIt) {
  GoOn(4);
  core::PhaseOrder order;
  order.phase = core::Phase::kRepair;
  order.relayout = true;
  order.holders = {Rank(0), Rank(2)};
  ASSERT_TRUE(trainer.offer.Prepare(order).ok());
  EXPECT_EQ(mark(), StateMark::kWhole) << "it holds what was registered";
  order.holders = {Rank(1), Rank(2)};
  ASSERT_TRUE(trainer.offer.Prepare(order).ok());
  EXPECT_EQ(mark(), StateMark::kWriting);
  shared.page.Mark(StateMark::kWhole);
  order = {};
  order.phase = core::Phase::kRepair;
  order.rung = Rung::kReload;
  ASSERT_TRUE(trainer.offer.Prepare(order).ok());
  EXPECT_EQ(mark(), StateMark::kWriting);
}

// ---- snapshots ----------------------------------------------------------------------------------------------------

TEST_F(WholeAgent, AnswersAnOrderForASnapshotOnce) {
  const auto service = std::make_shared<Snapshots>();
  ASSERT_TRUE(shared.registered.SetSnapshotService(service).ok());
  GoOn(4);
  const auto arm = [this](uint64_t step) {
    SnapshotOrder order;
    order.step = Step(step);
    Tell(order);
    on.thread.Call([this, order] { on.snapshots.Arm({Generation(1), order}); });
    Settle();
  };
  Stand(6, GateState::kCommitted);
  arm(6);
  EXPECT_TRUE(on.snapshots.IsDue(Step(6)));
  EXPECT_FALSE(on.snapshots.IsDue(Step(5)));
  on.snapshots.Take(Step(5));
  on.snapshots.Take(Step(6));
  on.snapshots.Take(Step(6));
  EXPECT_THAT(service->taken, ::testing::ElementsAre(Step(6)));
  EXPECT_TRUE(All<SnapshotReport>().empty()) << "the service answers";

  Stand(8, GateState::kCommitted);
  arm(7);
  EXPECT_FALSE(on.snapshots.IsDue(Step(7))) << "the boundary is behind";
  const auto reports = All<SnapshotReport>();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].code, StatusCode::kUnavailable);
  EXPECT_THAT(reports[0].text, HasSubstr("step 8"));

  arm(9);
  on.thread.Call([this] { on.snapshots.Abort(); });
  Settle();
  EXPECT_FALSE(on.snapshots.IsDue(Step(9)));
  on.snapshots.Take(Step(9));
  EXPECT_EQ(service->taken.size(), 1u);
  EXPECT_EQ(service->aborts, 1);
}

TEST_F(WholeAgent, RefusesSnapshotsWithoutAService) {
  GoOn(4);
  SnapshotOrder order;
  order.step = Step(6);
  Tell(order);
  on.thread.Call([this, order] { on.snapshots.Arm({Generation(1), order}); });
  const auto reports = All<SnapshotReport>();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].code, StatusCode::kFailedPrecondition);
  EXPECT_FALSE(on.snapshots.IsDue(Step(6)));
}

// ---- what takes too long ------------------------------------------------------------------------------------------

TEST_F(WholeAgent, TellsOnceOfAnActivityThatHasPassedItsLimit) {
  GoOn(4);
  const TimePoint now = SteadyClock::SteadyNow();
  shared.page.words().progress = PackProgress(4, TrainPhase::kUpdate, Activity::kEval);
  shared.activity_clock.Set({now - 3s, now + 1h});
  on.thread.Call([this] { on.pulse.Beat(); });
  EXPECT_TRUE(All<core::FaultReport>().empty()) << "it has time";
  shared.activity_clock.Set({now - 3s, now - 1s});
  (void)shared.gate.Lock();
  on.thread.Call([this] { on.pulse.Beat(); });
  EXPECT_TRUE(All<core::FaultReport>().empty()) << "within an incident the stop watch goes by the limit";
  shared.gate.Release(Step(4));
  for (int i = 0; i < 2; ++i) on.thread.Call([this] { on.pulse.Beat(); });
  const auto faults = All<core::FaultReport>();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, FaultKind::kHang);
  EXPECT_EQ(faults[0].since, now - 1s);
  EXPECT_THAT(faults[0].text, HasSubstr("eval"));
  EXPECT_GE(shared.page.words().beat.load(), 4u);
}

class StopOfAWholeAgent : public WholeAgent {
 protected:
  // The guard begins with this stop handler; what the core orders is done.
  void Open(HandlerFunction handler) {
    ASSERT_TRUE(shared.registered.SetHandler(HandlerKind::kStop, handler, this).ok());
    on.stop.Open();
    opened = true;
    GoOn(4);
    on.thread.Call([this] { actor.on_stop = [this](const core::StopOrder& order) { on.stop.Stop(order); }; });
  }

 public:
  std::atomic<int> calls{0};  // of the handler, which has no more than this fixture's address
};

TEST_F(StopOfAWholeAgent, GivesUpAHandlerThatDoesNotReturn) {
  Open([](HandlerContext& call, void* self) -> Status {
    ++static_cast<StopOfAWholeAgent*>(self)->calls;
    while (!call.cancel->cancelled()) std::this_thread::sleep_for(1ms);
    return Status::Ok();
  });
  core::StopOrder order;
  order.stop_limit = 20ms;
  Tell(order);
  const auto faults = Await<core::FaultReport>();
  EXPECT_EQ(faults[0].kind, FaultKind::kStalled);
  EXPECT_THAT(faults[0].text, HasSubstr("has not returned within 20 ms"));
  on.stop.AwaitIdle();  // its thread may come to the handler after that limit
  EXPECT_EQ(calls, 1);
}

TEST_F(StopOfAWholeAgent, GivesUpATrainerThatStaysInItsStep) {
  Open([](HandlerContext&, void* self) -> Status {
    ++static_cast<StopOfAWholeAgent*>(self)->calls;
    return Status::Ok();
  });
  Stand(5, GateState::kCommitted);
  core::StopOrder order;
  order.park_limit = order.step_limit = 20ms;
  Tell(order);
  const auto faults = Await<core::FaultReport>();
  EXPECT_EQ(faults[0].kind, FaultKind::kStalled);
  EXPECT_THAT(faults[0].text, HasSubstr("did not come out of its step within 20 ms"));
  EXPECT_EQ(faults[0].step, Step(5));
}

TEST_F(StopOfAWholeAgent, WaitsForAnActivityUntilItsOwnLimit) {
  Open([](HandlerContext&, void*) -> Status { return Status::Ok(); });
  const TimePoint deadline = SteadyClock::SteadyNow() + 400ms;
  shared.page.words().progress = PackProgress(5, TrainPhase::kUpdate, Activity::kSection);
  shared.activity_clock.Set({SteadyClock::SteadyNow(), deadline});
  core::StopOrder order;
  order.park_limit = order.step_limit = 1ms;
  order.activity_limit = 1h;
  Tell(order);
  EXPECT_THAT(Await<core::FaultReport>()[0].text, HasSubstr("did not come out of its step"));
  EXPECT_GE(SteadyClock::SteadyNow(), deadline) << "what it is busy with it may finish";
}

TEST_F(StopOfAWholeAgent, IsForGoodWhereItsDeviceContextIsLost) {
  constexpr int kInvalidValue = 1, kIllegalAddress = 700;
  Open([](HandlerContext&, void*) -> Status { return Status::Ok(); });
  EXPECT_EQ(trainer.reports.CudaError(kInvalidValue, 0, {}, "a call", ErrorTime::Now()).code(), StatusCode::kInternal);
  EXPECT_FALSE(trainer.reports.told()) << "that is no fault of the device";
  EXPECT_EQ(trainer.reports.CudaError(kIllegalAddress, kIllegalAddress, {}, "a kernel", ErrorTime::Now()).code(),
            StatusCode::kEnded);
  EXPECT_TRUE(trainer.reports.leaves());
  Settle();
  ASSERT_TRUE(shared.inbox.end()) << "the trainer's thread is told, wherever it waits";
  EXPECT_NE(shared.inbox.end()->exit_code, 0);
  EXPECT_THAT(shared.inbox.end()->text, HasSubstr("a kernel"));
  on.thread.Call([this] { on.orders.End({0, "later"}); });
  Settle();
  EXPECT_THAT(shared.inbox.end()->text, HasSubstr("a kernel")) << "the first end stays";
}

TEST_F(StopOfAWholeAgent, IsNotHeardOfOnceTheTrainerHasParked) {
  Open([](HandlerContext&, void*) -> Status { return Status::Ok(); });
  core::StopOrder order;
  order.park_limit = order.step_limit = 1h;
  Tell(order);
  (void)shared.gate.Lock();
  trainer.parking.LeaveLoop({StatusCode::kInterrupted, "stopped"}, LoopEnd::kStatus, "");
  const auto parked = Await<core::Parked>();
  ASSERT_EQ(parked.size(), 1u) << "the handler has returned and the thread is out of its step";
  EXPECT_EQ(parked[0].state, GateState::kCommitted);
  EXPECT_EQ(parked[0].step, Step(4));
  EXPECT_TRUE(All<core::FaultReport>().empty());
}

}  // namespace
}  // namespace kintsugi
