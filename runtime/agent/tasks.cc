#include "runtime/agent/tasks.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

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

struct Tasks::Open {
  Open(const core::RunOnTrainer& order, std::shared_ptr<CancelToken> token, std::unique_ptr<Store> of_generation)
      : run(order), cancel(std::move(token)), store(std::move(of_generation)) {}
  const core::RunOnTrainer run;
  const std::shared_ptr<CancelToken> cancel;
  const std::unique_ptr<Store> store;
  HandlerContext call;
  core::PhaseDone done;
  bool live = false;  // they were live already
};

Tasks::Tasks(const Membership& self, const Registration& registered, const LoopPass& pass, TrainerPosition& position,
             StoreClient& store, AgentThread& thread, StopWatch& stop, StateOffer& offer, Relocations& relocations,
             NextState& next, Refusals& refusals)
    : self_(self),
      registered_(registered),
      pass_(pass),
      position_(position),
      store_(store),
      thread_(thread),
      stop_(stop),
      offer_(offer),
      relocations_(relocations),
      next_(next),
      refusals_(refusals) {}

Tasks::~Tasks() = default;

bool Tasks::Begin(const core::RunOnTrainer& run, std::shared_ptr<CancelToken> cancel) {
  KINTSUGI_CHECK(cancel, "a task that cannot be cancelled");
  stop_.AwaitIdle();  // what it aborts is what the task destroys and makes anew
  position_.BeginTask(run.order.phase);
  open_ = std::make_unique<Open>(run, std::move(cancel), store_.Of(run.generation));
  open_->call = ContextOf(run);
  open_->call.cancel = open_->cancel.get();
  open_->call.store = open_->store.get();
  open_->done.phase = run.order.phase;
  const bool verifies = run.order.phase == core::Phase::kVerify;
  const Status begun = Guarded([&]() -> Status {
    next_.Settle(run);
    KINTSUGI_RETURN_IF_ERROR(relocations_.Drop(run.order.unregistered));
    relocations_.Settle();
    return verifies ? Verify() : Prepare();
  });
  if (begun.ok() && !verifies) return true;
  Answer(begun);
  return false;
}

GuardTask Tasks::open() {
  KINTSUGI_CHECK(open_, "no task is open");
  return {TaskOf(open_->run.order.phase).task, open_->call.step, &open_->call, {}};
}

HandlerContext Tasks::ContextOf(const core::RunOnTrainer& run) const {
  HandlerContext call;
  call.rank = self_.options.rank;
  call.crew = run.crew;
  call.world_size = run.crew.empty() ? self_.options.world_size : static_cast<int>(run.crew.size());
  call.generation = run.generation;
  call.step = run.order.step;
  call.deadline = SteadyClock::SteadyNow() + run.order.limit;
  call.rung = run.order.rung;
  call.fault_ranks = run.order.fault_ranks;
  call.replaced_ranks = run.order.replaced_ranks;
  call.partners = run.order.partners;
  std::copy_if(run.order.moves.begin(), run.order.moves.end(), std::back_inserter(call.moves),
               [](const RepairMove& move) { return !move.adopt; });
  call.entries = run.order.entries;
  call.directory = run.order.directory;
  call.begins = run.order.begins;
  call.from_snapshot = run.order.from_snapshot;
  call.moves_latest = run.order.moves_latest;
  call.unregistered = run.order.unregistered;
  call.relayout = run.order.relayout;
  call.holders = run.order.holders;
  call.registered_in = run.order.registered_in;
  return call;
}

Status Tasks::Verify() {
  if (!registered_.service()) return Status::Ok();
  KINTSUGI_ASSIGN_OR_RETURN(open_->done.digests, registered_.service()->Digests(*open_->cancel));
  return Status::Ok();
}

// What comes before the trainer's part of a task: its state, and the objects of the step, are put in place.
Status Tasks::Prepare() {
  KINTSUGI_RETURN_IF_ERROR(offer_.Prepare(open_->run.order));
  if (open_->run.order.phase != core::Phase::kRollback) return Status::Ok();
  KINTSUGI_RETURN_IF_ERROR(refusals_.Hear(open_->call));
  open_->done.back_from = refusals_.BackFrom(open_->call.step);
  return offer_.has_mirrored() ? PrepareObjects() : Status::Ok();
}

Status Tasks::PrepareObjects() {
  const StateRegistry& registry = registered_.registry();
  // A process that begins a run, or has just loaded a checkpoint, has them live; otherwise they may be ahead of S.
  open_->live = open_->call.rung == Rung::kReload || (!pass_.ever_released() && !self_.join.replacement);
  if (open_->live) return Status::Ok();
  KINTSUGI_ASSIGN_OR_RETURN(const MirroredObjects objects, registered_.service()->Mirrored(open_->call.step));
  return registry.RestoreMirrored(JoinMirrored(objects));
}

Status Tasks::CutAnew(const CutState& state) {
  if (position_.at() != TrainerAt::kInTask || !open_->call.relayout || open_->run.order.phase != core::Phase::kRebuild)
    return {StatusCode::kFailedPrecondition,
            "CutAnew while the trainer is " + std::string(position_.Name()) +
                ": state is cut anew in rebuild_group, where its context says relayout"};
  return next_.Take(state, open_->run.generation);
}

Status Tasks::CarryOut() {
  if (position_.at() != TrainerAt::kInTask) return position_.Misplaced("CarryOutTask");
  KINTSUGI_CHECK(open_, "the thread is within a task, and none is open");
  const HandlerKind kind = TaskOf(open_->run.order.phase).handler;
  const HandlerRegistry& handlers = registered_.handlers();
  // Nothing may follow from the state; every other task has a handler (CheckHandlers, or the registry says which
  // lacks).
  if (kind == HandlerKind::kRollback && !handlers.Has(kind)) return Finish(Status::Ok());
  return Finish(Guarded([&] { return handlers.Call(kind, open_->call); }));
}

Status Tasks::Finish(const Status& outcome) {
  if (position_.at() != TrainerAt::kInTask) return position_.Misplaced("FinishTask");
  KINTSUGI_CHECK(open_, "the thread is within a task, and none is open");
  relocations_.Settle();
  Answer(outcome.ok() ? Guarded([&] { return Conclude(); }) : outcome);
  return Status::Ok();
}

// What comes after the trainer's part.
Status Tasks::Conclude() {
  open_->done.bytes_moved = open_->call.bytes_moved;
  open_->done.loaded = open_->call.loaded_step;
  const core::Phase phase = open_->run.order.phase;
  if (phase == core::Phase::kRebuild) KINTSUGI_RETURN_IF_ERROR(refusals_.Tell(open_->call));
  // The agent's own channels belong to the generation just as the trainer's groups do.
  if (phase == core::Phase::kRebuild)
    if (auto told = next_.Told()) open_->done.next.push_back(*std::move(told));
  if (phase == core::Phase::kRebuild && registered_.service()) return registered_.service()->Open(open_->call);
  // Partners that were replaced hold nothing of ours yet.
  if (phase != core::Phase::kRollback || !offer_.has_mirrored()) return Status::Ok();
  // As they are by now: the handler may have put others (RefreshObjects).
  if (open_->live) return offer_.Mirror(open_->call.step, registered_.registry().ShareMirrored());
  KINTSUGI_ASSIGN_OR_RETURN(const MirroredObjects objects, registered_.service()->Mirrored(open_->call.step));
  return offer_.Mirror(open_->call.step, objects);
}

void Tasks::Answer(const Status& status) {
  KINTSUGI_CHECK(open_, "an answer to no task");
  if (!status.ok()) open_->done.unreached = std::move(open_->call.unreached);
  core::PhaseDone done = std::move(open_->done);
  done.code = status.code();
  done.unregistered.assign(relocations_.unregistered().begin(), relocations_.unregistered().end());
  done.text = status.ok() ? open_->call.remark : status.message();
  done.objects_ahead = done.phase == core::Phase::kRepair && offer_.is_ahead_at(open_->run.order.step);
  std::optional<core::Published> published;
  const core::RunOnTrainer& run = open_->run;
  if (run.order.phase == core::Phase::kRename && status.ok())
    published = core::Published{run.order.step, run.order.directory};
  thread_.Post(core::HandlerDone{run.generation, std::move(done), std::move(published)});
  position_.EndTask();
  open_.reset();
}

}  // namespace kintsugi
