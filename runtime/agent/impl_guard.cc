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

std::optional<HandlerKind> HandlerOf(core::Phase phase) {
  switch (phase) {
    case core::Phase::kClean:
      return HandlerKind::kClean;
    case core::Phase::kRebuild:
      return HandlerKind::kRebuildGroup;
    case core::Phase::kRepair:
      return HandlerKind::kRepair;
    case core::Phase::kRollback:
      return HandlerKind::kRollback;
    case core::Phase::kDump:
      return HandlerKind::kSave;
    case core::Phase::kRename:
      return HandlerKind::kRename;
    default:
      return std::nullopt;
  }
}

}  // namespace

Status Agent::Impl::RegisterFault(const std::string& pattern, FaultClass fault_class) {
  if (pattern.empty()) return {StatusCode::kInvalidArgument, "a fault pattern must not be empty: it would match all"};
  fault_patterns_.emplace_back(pattern, fault_class);
  return Status::Ok();
}

core::Ready Agent::Impl::MakeReady() const {
  return {registry_.Summary(), layouts_, gate_mode_ != GateMode::kOff, warning_};
}

Status Agent::Impl::CheckReady(LoopFunction loop) const {
  if (running_) return {StatusCode::kFailedPrecondition, "Agent::Run was called twice"};
  if (!loop) return {StatusCode::kInvalidArgument, "Agent::Run needs a loop function"};
  for (HandlerKind kind : {HandlerKind::kStop, HandlerKind::kClean, HandlerKind::kRebuildGroup})
    if (!handlers_.Has(kind))
      return {StatusCode::kFailedPrecondition,
              "no handler '" + std::string(HandlerKindName(kind)) + "' is registered: Agent::Run needs it"};
  for (const auto& [key, object] : registry_.objects())
    if (object.kind == ObjectKind::kDerived && !handlers_.Has(HandlerKind::kRollback))
      return {
          StatusCode::kFailedPrecondition,
          "object '" + key + "' is derived, but no handler 'rollback' is registered that computes it from the step"};
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
  KINTSUGI_RETURN_IF_ERROR(CheckReady(loop));
  has_mirrored_ = registry_.HasMirrored();
  registry_.Seal();
  OfferState();
  for (const std::string& injection : join_.injections) Arm(injection);
  stop_caller_ = std::make_unique<StopCaller>(
      [this](CancelToken& cancel) { CallStopHandler(cancel); },
      [this](uint64_t request) { boost::asio::post(io_, [this, request] { OnStopReturned(request); }); });
  running_ = true;
  boost::asio::post(io_, [this, ready = MakeReady()] { core_->SetReady(ready); });
  Park(Outcome::kReady);

  // A release taken at a save point comes out of the loop: the trainer is on its way to the new first step already.
  while (std::exchange(released_at_save_point_, false) || Serve() != Served::kEnded) {
    RunLoop(loop, context);
    if (ended_) break;
  }
  return Leave();
}

void Agent::Impl::RunLoop(LoopFunction loop, void* context) {
  resumed_told_ = false;
  fault_told_ = false;
  begun_ = Step();
  loop_thread_ = 0;
  activities_.clear();  // whatever was open was left by an exception or a status
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
  if (!ended_ && !released_at_save_point_) FinishLoop(status, threw);
}

Status Agent::Impl::Leave() {
  End end{1, "the run has ended"};
  {
    std::lock_guard lock(mutex_);
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
  std::unique_lock lock(mutex_);
  if (!leaves_) return false;
  changed_.wait(lock, [&] { return end_.has_value(); });
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

Agent::Impl::Served Agent::Impl::Serve() {
  for (;;) {
    std::optional<core::RunOnTrainer> order;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return order_ || release_ || continue_ || end_; });
      if (end_) return Served::kEnded;
      if (order_) {
        order = std::exchange(order_, std::nullopt);
        cancel_ = std::make_shared<CancelToken>();
      } else if (release_) {
        generation_ = release_->generation;
        released_at_ = release_->step;
        ever_released_ = true;
        release_.reset();
        continue_ = false;
        word().store(GateWord::Pack(GateState::kCommitted, released_at_.value()), std::memory_order_release);
        MarkState(core::StateMark::kWhole);
        return Served::kReleased;
      } else {
        continue_ = false;
        return Served::kContinued;
      }
    }
    RunOrder(*order);
  }
}

void Agent::Impl::RunOrder(const core::RunOnTrainer& run) {
  std::shared_ptr<CancelToken> cancel;
  {
    std::lock_guard lock(mutex_);
    cancel = cancel_;
  }
  stop_caller_->AwaitIdle();  // what it aborts is what the handlers below destroy and make anew
  core::PhaseDone done;
  done.phase = run.order.phase;
  Status status;
  try {
    status = CallHandlers(run, *cancel, &done);
  } catch (const std::exception& e) {
    status = {StatusCode::kInternal, e.what()};
  } catch (...) {
    status = {StatusCode::kInternal, "something that is no std::exception"};
  }
  done.code = status.code();
  done.text = status.message();
  std::optional<core::Published> published;
  if (run.order.phase == core::Phase::kRename && status.ok())
    published = core::Published{run.order.step, run.order.directory};
  Post(core::HandlerDone{run.generation, std::move(done), std::move(published)});
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
  return call;
}

Status Agent::Impl::CallHandlers(const core::RunOnTrainer& run, CancelToken& cancel, core::PhaseDone* done) {
  AgentStore store(*this, run.generation);
  HandlerContext call = ContextOf(run, cancel, store);
  if (run.order.phase == core::Phase::kVerify) {
    if (!service_) return Status::Ok();
    KINTSUGI_ASSIGN_OR_RETURN(done->digests, service_->Digests());
    return Status::Ok();
  }
  KINTSUGI_RETURN_IF_ERROR(PrepareState(run));
  if (run.order.phase == core::Phase::kRollback) return RollBack(call);
  KINTSUGI_RETURN_IF_ERROR(handlers_.Call(*HandlerOf(run.order.phase), call));
  done->bytes_moved = call.bytes_moved;
  done->loaded = call.loaded_step;
  // The agent's own channels belong to the generation just as the trainer's groups do.
  if (run.order.phase == core::Phase::kRebuild && service_) return service_->Open(call);
  return Status::Ok();
}

Status Agent::Impl::RollBack(HandlerContext& call) {
  std::vector<uint8_t> objects;
  if (has_mirrored_) {
    // A process that begins a run, or has just loaded a checkpoint, has them live; otherwise they may be ahead of S.
    const bool live = call.rung == Rung::kReload || (!ever_released_ && !join_.replacement);
    if (live) {
      objects = registry_.CaptureMirrored();
    } else {
      KINTSUGI_ASSIGN_OR_RETURN(objects, service_->Mirrored(call.step));
      KINTSUGI_RETURN_IF_ERROR(registry_.RestoreMirrored(objects));
    }
  }
  if (handlers_.Has(HandlerKind::kRollback)) KINTSUGI_RETURN_IF_ERROR(handlers_.Call(HandlerKind::kRollback, call));
  // Partners that were replaced hold nothing of ours yet.
  if (!has_mirrored_) return Status::Ok();
  KINTSUGI_RETURN_IF_ERROR(service_->Mirror(call.step, objects));
  KeepObjects(call.step);
  return Status::Ok();
}

}  // namespace kintsugi
