// The guard on the trainer's thread: runs the loop, turns what leaves it into a fault, parks, carries out the
// controller's orders and goes back to the loop.
#include <algorithm>
#include <boost/asio/post.hpp>

#include "runtime/agent/impl.h"

namespace kintsugi {
namespace {

using core::GateState;
using core::GateWord;
using Outcome = core::TrainerParked::Outcome;

}  // namespace

Status Agent::Impl::RegisterFault(const std::string& pattern, FaultClass fault_class) {
  if (pattern.empty()) return {StatusCode::kInvalidArgument, "a fault pattern must not be empty: it would match all"};
  fault_patterns_.emplace_back(pattern, fault_class);
  return Status::Ok();
}

core::Ready Agent::Impl::MakeReady() const {
  return {registry_.Summary(),
          layouts_,
          gate_mode_ != GateMode::kOff,
          warning_,
          {unregistered_.begin(), unregistered_.end()}};
}

Status Agent::Impl::CheckHandlers() const {
  for (HandlerKind kind : {HandlerKind::kStop, HandlerKind::kClean, HandlerKind::kRebuildGroup})
    if (!handlers_.Has(kind))
      return {StatusCode::kFailedPrecondition,
              "no handler '" + std::string(HandlerKindName(kind)) + "' is registered: Agent::Run needs it"};
  for (const auto& [key, object] : registry_.objects())
    if (object.kind == ObjectKind::kDerived && !handlers_.Has(HandlerKind::kRollback))
      return {
          StatusCode::kFailedPrecondition,
          "object '" + key + "' is derived, but no handler 'rollback' is registered that computes it from the step"};
  return Status::Ok();
}

Status Agent::Impl::CheckState() const {
  if (running_) return {StatusCode::kFailedPrecondition, "the guard was begun twice (Agent::Run, Agent::BeginGuard)"};
  KINTSUGI_RETURN_IF_ERROR(CheckLayouts());
  for (const auto& [key, tensor] : registry_.tensors())
    if (service_) KINTSUGI_RETURN_IF_ERROR(registry_.DeviceOf(tensor).status());
  if (registry_.HasMirrored() && !service_)
    return {StatusCode::kFailedPrecondition,
            "mirrored objects need the state service: join through kintsugi::Join, or SetStateService"};
  return Status::Ok();
}

// What no layout holds would never be repaired, and nobody would notice.
Status Agent::Impl::CheckLayouts() const {
  std::map<int, size_t> tensors;
  for (const auto& [key, tensor] : registry_.tensors()) {
    ++tensors[tensor.layout];
    if (layouts_.count(tensor.layout)) continue;
    std::string declared;
    for (const auto& [layout, claim] : layouts_) declared += (declared.empty() ? "" : ", ") + std::to_string(layout);
    return {StatusCode::kFailedPrecondition,
            "tensor '" + key + "' is of layout " + std::to_string(tensor.layout) +
                ", which nobody declared: call SetReplicaLayout(" + std::to_string(tensor.layout) +
                ", group, replicas), with a group of this rank alone where no other holds it (declared: " +
                (declared.empty() ? "none" : declared) + ")"};
  }
  for (const auto& [layout, claim] : layouts_)
    if (!tensors.count(layout) && !(registry_.tensors().empty() && registry_.HasMirrored()))
      return {
          StatusCode::kFailedPrecondition,
          "layout " + std::to_string(layout) + " was declared (SetReplicaLayout), but no registered tensor is of it"};
  return Status::Ok();
}

Status Agent::Impl::Run(LoopFunction loop, void* context) {
  if (!loop) return {StatusCode::kInvalidArgument, "Agent::Run needs a loop function"};
  if (!running_) KINTSUGI_RETURN_IF_ERROR(CheckHandlers());
  KINTSUGI_RETURN_IF_ERROR(BeginGuard(/*pulled=*/false));
  for (;;) {
    KINTSUGI_ASSIGN_OR_RETURN(const GuardTask task, NextTask(TimePoint::Max()));
    if (task.kind == TaskKind::kEnded) return Leave();
    KINTSUGI_RETURN_IF_ERROR(task.kind == TaskKind::kLoop ? RunLoop(loop, context) : CarryOutTask());
  }
}

Status Agent::Impl::RunLoop(LoopFunction loop, void* context) {
  Status status;
  bool threw = true;
  try {
    status = loop(released_at_, context);
    threw = false;
  } catch (const std::exception& e) {
    status = {StatusCode::kInternal, e.what()};
  } catch (...) {
    status = {StatusCode::kInternal, "something that is no std::exception"};
  }
  return LeaveLoop(status, threw);
}

Status Agent::Impl::Leave() {
  End end{1, "the run has ended"};
  {
    const MutexLock lock(mutex_);
    if (end_) end = *end_;
  }
  exit_code_ = end.exit_code;
  CloseToTrainer();
  CancelToken never;
  HandlerContext call;
  call.rank = options_.rank;
  call.world_size = options_.world_size;
  call.generation = generation_;
  call.step = Step(Word().step);
  call.deadline = TimePoint::Max();
  call.cancel = &never;
  const Status last = handlers_.Call(HandlerKind::kExit, call);
  if (!last.ok()) log_->Write(LogLevel::kError, LogLine("exit_failed", {{"why", last.message()}}));
  if (exit_code_ == 0) return Status::Ok();
  return {StatusCode::kEnded, end.text};
}

void Agent::Impl::FinishLoop(const Status& status, bool threw) {
  // Whatever leaves the loop inside an update leaves the update half done.
  const GateWord now = Word();
  if (now.state == GateState::kUpdating) MoveWord(GateState::kTorn, now.step);
  if (now.state == GateState::kAtGate) MoveWord(GateState::kCommitted, now.step.Previous());
  if (DropsOut()) return;
  const Status settled = SettleUpdate();
  if (!settled.ok() && !fault_told_) return Park(Outcome::kFault, Classify(settled));
  if (status.ok()) return Park(Outcome::kFinished);
  const bool interrupted = status.code() == StatusCode::kInterrupted || status.code() == StatusCode::kCancelled;
  if (!threw && fault_told_) return Park(Outcome::kInterrupted);
  if (!threw && interrupted && Word().locked) return Park(Outcome::kInterrupted);
  core::FaultReport fault = Classify(status);
  // Interrupted with no incident in sight: something was aborted under the trainer.
  if (!threw && interrupted) fault.kind = core::FaultKind::kCommError;
  if (fault.kind == core::FaultKind::kMemoryHigh) MarkState(core::StateMark::kWriting);
  Park(Outcome::kFault, std::move(fault));
}

// This process is to be replaced: its end is on the way.
bool Agent::Impl::DropsOut() {
  MutexLock lock(mutex_);
  if (!leaves_) return false;
  changed_.Wait(lock, [&]() KINTSUGI_REQUIRES(mutex_) { return end_.has_value(); });
  return true;
}

void Agent::Impl::MoveWord(GateState state, Step step) {
  uint64_t found = word().load();
  while (!word().compare_exchange_weak(found, GateWord::Pack(state, step.value()) | (found & GateWord::kLockBit))) {
  }
}

core::FaultReport Agent::Impl::Classify(const Status& status) const {
  core::FaultReport fault;
  fault.kind = status.code() == StatusCode::kCommFailure ? core::FaultKind::kCommError : core::FaultKind::kException;
  for (const auto& [pattern, fault_class] : fault_patterns_) {
    if (status.message().find(pattern) == std::string::npos) continue;
    fault.kind = fault_class == FaultClass::kException   ? core::FaultKind::kException
                 : fault_class == FaultClass::kCommError ? core::FaultKind::kCommError
                                                         : core::FaultKind::kMemoryHigh;
    break;
  }
  const GateWord word = Word();
  fault.text = status.message();
  fault.step = Step(UnpackProgress(words().progress.load()).step);
  fault.in_update = word.state == GateState::kTorn;
  const uint64_t injected = words().fault_ns.load();
  const TimePoint now = SteadyClock::SteadyNow();
  // The injector's stamp counts while it is fresh: it is this fault's.
  const TimePoint stamp(Duration(static_cast<int64_t>(injected)));
  fault.since = injected > 0 && now - stamp < std::chrono::seconds(5) ? stamp : now;
  return fault;
}

void Agent::Impl::Park(Outcome outcome, core::FaultReport fault) {
  Post(core::TrainerParked{outcome, Word(), std::move(fault)});
}

HandlerContext Agent::Impl::ContextOf(const core::RunOnTrainer& run, CancelToken& cancel, Store& store) const {
  HandlerContext call;
  call.rank = options_.rank;
  call.world_size = options_.world_size;
  call.generation = run.generation;
  call.step = run.order.step;
  call.deadline = SteadyClock::SteadyNow() + run.order.limit;
  call.cancel = &cancel;
  call.store = &store;
  call.rung = run.order.rung;
  call.fault_ranks = run.order.fault_ranks;
  call.replaced_ranks = run.order.replaced_ranks;
  call.partners = run.order.partners;
  std::copy_if(run.order.moves.begin(), run.order.moves.end(), std::back_inserter(call.moves),
               [](const RepairMove& move) { return !move.adopt; });
  call.entries = run.order.entries;
  call.directory = run.order.directory;
  call.from_snapshot = run.order.from_snapshot;
  call.moves_latest = run.order.moves_latest;
  call.unregistered = run.order.unregistered;
  return call;
}

}  // namespace kintsugi
