// The guard as a sequence of tasks on the trainer's thread: which comes next, what the agent does around each of them,
// and what the controller hears of it. Agent::Run works them off by itself, others pull them (guard_task.h).
#include <algorithm>
#include <boost/asio/post.hpp>

#include "runtime/agent/impl.h"

namespace kintsugi {
namespace {

using core::GateState;
using core::GateWord;

// Phases that are the trainer's to work off; VERIFY is the agent's own.
struct PhaseTask {
  core::Phase phase;
  HandlerKind handler;
  TaskKind task;
};
constexpr PhaseTask kPhaseTasks[] = {
    {core::Phase::kClean, HandlerKind::kClean, TaskKind::kClean},
    {core::Phase::kRebuild, HandlerKind::kRebuildGroup, TaskKind::kRebuildGroup},
    {core::Phase::kRepair, HandlerKind::kRepair, TaskKind::kRepair},
    {core::Phase::kRollback, HandlerKind::kRollback, TaskKind::kRollback},
    {core::Phase::kDump, HandlerKind::kSave, TaskKind::kSave},
    {core::Phase::kRename, HandlerKind::kRename, TaskKind::kRename},
};

const PhaseTask& TaskOf(core::Phase phase) {
  const auto* found = std::find_if(std::begin(kPhaseTasks), std::end(kPhaseTasks),
                                   [&](const PhaseTask& task) { return task.phase == phase; });
  KINTSUGI_CHECK(found != std::end(kPhaseTasks), "an order for a phase that is not the trainer's");
  return *found;
}

// What the state plane throws is the task's failure, and never leaves the agent.
template <typename Function>
Status Guarded(const Function& function) {
  try {
    return function();
  } catch (const std::exception& e) {
    return {StatusCode::kInternal, e.what()};
  } catch (...) {
    return {StatusCode::kInternal, "something that is no std::exception"};
  }
}

}  // namespace

std::string_view Agent::Impl::TrainerPlaceName() const {
  switch (at_) {
    case TrainerAt::kOutside:
      return "outside the guard: BeginGuard comes first";
    case TrainerAt::kParked:
      return "parked: NextTask comes next";
    case TrainerAt::kInLoop:
      return "in its loop: LeaveLoop comes first";
    case TrainerAt::kAtSavePoint:
      return "at a save point: NextTask comes next";
    case TrainerAt::kInTask:
      return "within a task: FinishTask comes first";
    case TrainerAt::kEnded:
      return "past the end of the run";
  }
  return "nowhere";
}

Status Agent::Impl::Misplaced(const char* call) const {
  return {StatusCode::kFailedPrecondition,
          std::string(call) + " while the trainer is " + std::string(TrainerPlaceName())};
}

Status Agent::Impl::BeginGuard(bool pulled) {
  KINTSUGI_RETURN_IF_ERROR(CheckState());
  pulled_ = pulled;
  has_mirrored_ = registry_.HasMirrored();
  registry_.Seal();
  OfferState();
  for (const std::string& injection : join_.injections) Arm(injection);
  stop_caller_ = std::make_unique<StopCaller>(
      [this](CancelToken& cancel) { CallStopHandler(cancel); },
      [this](uint64_t request) { boost::asio::post(io_, [this, request] { OnStopReturned(request); }); });
  running_ = true;
  at_ = TrainerAt::kParked;
  boost::asio::post(io_, [this, ready = MakeReady()] { core_->SetReady(ready); });
  Park(core::TrainerParked::Outcome::kReady);
  return Status::Ok();
}

Result<GuardTask> Agent::Impl::NextTask(TimePoint until) {
  if (at_ != TrainerAt::kParked && at_ != TrainerAt::kAtSavePoint) return Misplaced("NextTask");
  // A release taken at a save point came out of the loop by way of kUnwind.
  if (at_ == TrainerAt::kParked && std::exchange(released_at_save_point_, false)) return EnterLoop();
  for (;;) {
    std::optional<core::RunOnTrainer> order;
    {
      MutexLock lock(mutex_);
      const auto due = [&]() KINTSUGI_REQUIRES(mutex_) { return order_ || release_ || continue_ || end_; };
      if (until == TimePoint::Max())
        changed_.Wait(lock, due);
      else if (!changed_.WaitUntil(lock, std::chrono::steady_clock::time_point(until.since_epoch()), due))
        return GuardTask{};
      if (end_ && at_ == TrainerAt::kAtSavePoint) {  // the end comes once the loop has been left
        at_ = TrainerAt::kInLoop;
        return GuardTask{TaskKind::kUnwind, Step(Word().step), nullptr, {}};
      }
      if (end_) {
        const End end = *end_;
        lock.Unlock();
        return EndGuard(end);
      }
      if (order_) {
        order = std::exchange(order_, std::nullopt);
        cancel_ = std::make_shared<CancelToken>();
      } else if (release_) {
        TakeRelease();
        if (at_ == TrainerAt::kParked) return EnterLoop();
        released_at_save_point_ = true;
        at_ = TrainerAt::kInLoop;
        return GuardTask{TaskKind::kUnwind, released_at_, nullptr, {}};
      } else {
        continue_ = false;
        if (at_ == TrainerAt::kParked) continue;
        at_ = TrainerAt::kInLoop;
        return GuardTask{TaskKind::kContinue, Step(Word().step), nullptr, {}};
      }
    }
    if (BeginTask(*order)) return GuardTask{TaskOf(order->order.phase).task, task_->call.step, &task_->call, {}};
  }
}

GuardTask Agent::Impl::EndGuard(const End& end) {
  at_ = TrainerAt::kEnded;
  exit_code_ = end.exit_code;
  if (pulled_) CloseToTrainer();  // in Run it is Leave's, which calls the exit handler after it
  return {TaskKind::kEnded, Step(Word().step), nullptr, end.text};
}

void Agent::Impl::TakeRelease() {
  generation_ = release_->generation;
  released_at_ = release_->step;
  ever_released_ = true;
  release_.reset();
  continue_ = false;
  word().store(GateWord::Pack(GateState::kCommitted, released_at_.value()), std::memory_order_release);
  MarkState(core::StateMark::kWhole);
}

GuardTask Agent::Impl::EnterLoop() {
  resumed_told_ = false;
  fault_told_ = false;
  begun_ = Step();
  loop_thread_ = 0;
  activities_.clear();  // whatever was open was left by an exception or a status
  at_ = TrainerAt::kInLoop;
  return {TaskKind::kLoop, released_at_, nullptr, {}};
}

Status Agent::Impl::LeaveLoop(const Status& status, bool threw) {
  if (at_ != TrainerAt::kInLoop && at_ != TrainerAt::kAtSavePoint) return Misplaced("LeaveLoop");
  at_ = TrainerAt::kParked;
  if (!ended_ && !released_at_save_point_) FinishLoop(status, threw);
  return Status::Ok();
}

// False: the task is done already, or was the agent's own.
bool Agent::Impl::BeginTask(const core::RunOnTrainer& run) {
  std::shared_ptr<CancelToken> cancel;
  {
    const MutexLock lock(mutex_);
    cancel = cancel_;
  }
  stop_caller_->AwaitIdle();  // what it aborts is what the task destroys and makes anew
  task_before_ = at_;
  at_ = TrainerAt::kInTask;
  task_ = std::make_unique<OpenTask>(*this, run, std::move(cancel));
  task_->done.phase = run.order.phase;
  task_->call = ContextOf(run, *task_->cancel, *task_->store);
  const bool verifies = run.order.phase == core::Phase::kVerify;
  const Status begun = Guarded([&]() -> Status {
    KINTSUGI_RETURN_IF_ERROR(DropUnregistered(run.order.unregistered));
    SettleMoves();
    return verifies ? Verify() : PrepareTask();
  });
  if (begun.ok() && !verifies) return true;
  AnswerTask(begun);
  return false;
}

Status Agent::Impl::Verify() {
  if (!service_) return Status::Ok();
  KINTSUGI_ASSIGN_OR_RETURN(task_->done.digests, service_->Digests(*task_->cancel));
  return Status::Ok();
}

// What comes before the trainer's part of a task: its state, and the objects of the step, are put in place.
Status Agent::Impl::PrepareTask() {
  KINTSUGI_RETURN_IF_ERROR(PrepareState(task_->run));
  if (task_->run.order.phase != core::Phase::kRollback || !has_mirrored_) return Status::Ok();
  // A process that begins a run, or has just loaded a checkpoint, has them live; otherwise they may be ahead of S.
  const bool live = task_->call.rung == Rung::kReload || (!ever_released_ && !join_.replacement);
  if (live) {
    task_->objects = registry_.CaptureMirrored();
    return Status::Ok();
  }
  KINTSUGI_ASSIGN_OR_RETURN(task_->objects, service_->Mirrored(task_->call.step));
  return registry_.RestoreMirrored(task_->objects);
}

Status Agent::Impl::CarryOutTask() {
  if (at_ != TrainerAt::kInTask) return Misplaced("CarryOutTask");
  const HandlerKind kind = TaskOf(task_->run.order.phase).handler;
  // Nothing may follow from the state; every other task has a handler (CheckHandlers, or the registry says which
  // lacks).
  if (kind == HandlerKind::kRollback && !handlers_.Has(kind)) return FinishTask(Status::Ok());
  return FinishTask(Guarded([&] { return handlers_.Call(kind, task_->call); }));
}

Status Agent::Impl::FinishTask(const Status& outcome) {
  if (at_ != TrainerAt::kInTask) return Misplaced("FinishTask");
  SettleMoves();
  AnswerTask(outcome.ok() ? Guarded([&] { return ConcludeTask(); }) : outcome);
  return Status::Ok();
}

// What comes after the trainer's part.
Status Agent::Impl::ConcludeTask() {
  task_->done.bytes_moved = task_->call.bytes_moved;
  task_->done.loaded = task_->call.loaded_step;
  // The agent's own channels belong to the generation just as the trainer's groups do.
  if (task_->run.order.phase == core::Phase::kRebuild && service_) return service_->Open(task_->call);
  // Partners that were replaced hold nothing of ours yet.
  if (task_->run.order.phase != core::Phase::kRollback || !has_mirrored_) return Status::Ok();
  KINTSUGI_RETURN_IF_ERROR(service_->Mirror(task_->call.step, task_->objects));
  KeepObjects(task_->call.step);
  return Status::Ok();
}

void Agent::Impl::AnswerTask(const Status& status) {
  core::PhaseDone done = std::move(task_->done);
  done.code = status.code();
  done.unregistered.assign(unregistered_.begin(), unregistered_.end());
  done.text = status.ok() ? task_->call.remark : status.message();
  std::optional<core::Published> published;
  const core::RunOnTrainer& run = task_->run;
  if (run.order.phase == core::Phase::kRename && status.ok())
    published = core::Published{run.order.step, run.order.directory};
  Post(core::HandlerDone{run.generation, std::move(done), std::move(published)});
  at_ = task_before_;
  task_.reset();
}

}  // namespace kintsugi
