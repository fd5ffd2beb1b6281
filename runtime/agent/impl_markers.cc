// What the trainer calls in its loop. Without an incident BeginUpdate and EndUpdate are three compare-and-swaps on one
// word: no lock, no allocation, no system call.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "runtime/agent/impl.h"

namespace kintsugi {
namespace {

using core::GateState;
using core::GateWord;

}  // namespace

Status Agent::Impl::InterruptedStatus(const char* where) const {
  return {StatusCode::kInterrupted, std::string(where) + ": an incident has begun"};
}

Status Agent::Impl::Poll() const {
  if (words().gate_word.load(std::memory_order_relaxed) & GateWord::kLockBit) [[unlikely]]
    return InterruptedStatus("poll");
  return Status::Ok();
}

// Two threads in one loop are told apart by who came first since the loop was entered.
Status Agent::Impl::CheckThread(const char* where) {
  const auto self = static_cast<uintptr_t>(pthread_self());
  uintptr_t owner = loop_thread_.load(std::memory_order_relaxed);
  if (owner == self) [[likely]]
    return Status::Ok();
  if (owner == 0 && loop_thread_.compare_exchange_strong(owner, self)) return Status::Ok();
  return {StatusCode::kFailedPrecondition,
          std::string(where) + " on a second thread: the loop and its marks belong to one thread"};
}

// Under a lock the word may be anywhere: what follows then is settled by the incident.
Status Agent::Impl::CheckStep(const char* where, Step step) const {
  const GateWord now = Word();
  if (now.locked) return Status::Ok();
  const Step next = now.state == GateState::kCommitted ? now.step.Next() : now.step;
  if (step == next) [[likely]]
    return Status::Ok();
  return {StatusCode::kFailedPrecondition,
          std::string(where) + "(" + step.ToString() + ") while the rank is " +
              std::string(core::GateStateName(now.state)) + "(" + now.step.ToString() + "): step " + next.ToString() +
              " is the one to compute; each step has its update, an empty one where it is skipped"};
}

Status Agent::Impl::BeginStep(Step step) {
  KINTSUGI_RETURN_IF_ERROR(CheckThread("BeginStep"));
  if (const GateWord now = Word(); !now.locked && now.state != GateState::kCommitted) [[unlikely]]
    return {StatusCode::kFailedPrecondition,
            "BeginStep(" + step.ToString() + ") within update " + now.step.ToString() + ": EndUpdate ends it"};
  KINTSUGI_RETURN_IF_ERROR(CheckStep("BeginStep", step));
  if (std::exchange(begun_, step) == step && !Word().locked) [[unlikely]]
    return {StatusCode::kFailedPrecondition, "BeginStep(" + step.ToString() + ") twice"};
  const TimePoint now = SteadyClock::SteadyNow();
  begun_steps_.Note(step, now);
  collectives_ = 0;
  words().progress.store(PackProgress(step.value(), TrainPhase::kForward, activity()), std::memory_order_seq_cst);
  words().progress_ns.store(static_cast<uint64_t>(now.nanoseconds()), std::memory_order_relaxed);
  if (word().load(std::memory_order_acquire) & GateWord::kLockBit) return InterruptedStatus("BeginStep");
  NoteSettled();
  if (!resumed_told_) {
    resumed_told_ = true;
    words().resumed_generation.store(generation_.value(), std::memory_order_release);
    Post(core::TrainerResumed{});
  }
  const Step boundary = step.Previous();
  if (snapshot_at_.load(std::memory_order_seq_cst) == boundary.value() && boundary.value() > 0) [[unlikely]]
    TakeSnapshot(boundary);
  const uint64_t pause = pause_at_.load(std::memory_order_seq_cst);
  const auto every = [&](uint64_t steps) { return steps > 0 && boundary.value() % steps == 0; };
  const bool due = every(join_.save_every) || every(join_.verify_every);
  if (boundary > released_at_ && (due || (pause > 0 && boundary.value() >= pause))) return SaveAt(boundary);
  return Status::Ok();
}

Status Agent::Impl::SaveAt(Step boundary) {
  KINTSUGI_RETURN_IF_ERROR(SettleUpdate());
  Post(core::TrainerAtSavePoint{boundary});
  at_ = TrainerAt::kAtSavePoint;
  if (pulled_) return InterruptedStatus("save point");  // at_save_point() tells it from an incident
  while (at_ == TrainerAt::kAtSavePoint) {
    KINTSUGI_ASSIGN_OR_RETURN(const GuardTask task, NextTask(TimePoint::Max()));
    if (task.kind == TaskKind::kContinue) return Status::Ok();
    if (task.kind == TaskKind::kUnwind) break;
    KINTSUGI_RETURN_IF_ERROR(CarryOutTask());
  }
  return InterruptedStatus("save point");
}

Status Agent::Impl::Report(Step step, double loss, std::span<const uint64_t> samples) {
  if (report_writer_->Publish(step.value(), loss, samples)) return Status::Ok();
  return {StatusCode::kInvalidArgument, "Report of step " + step.ToString() + ": " + std::to_string(samples.size()) +
                                            " samples; the limit is " + std::to_string(ReportRing::kMaxSamples)};
}

Status Agent::Impl::MirrorObjects(Step step) {
  KINTSUGI_RETURN_IF_ERROR(service_->Mirror(step, registry_.CaptureMirrored()));
  KeepObjects(step);
  return Status::Ok();
}

Status Agent::Impl::BeginUpdate(Step step) {
  KINTSUGI_RETURN_IF_ERROR(CheckThread("BeginUpdate"));
  if (const DeviceFence* before = update_fence_.load(std::memory_order_relaxed)) {
    KINTSUGI_RETURN_IF_ERROR(AwaitFence(*before, "update before this one"));
    update_fence_.store(nullptr, std::memory_order_release);
  }
  uint64_t expected = GateWord::Pack(GateState::kCommitted, step.value() - 1);
  // A call that is refused below must not push a good step out of the mirror.
  if (has_mirrored_ && word().load(std::memory_order_acquire) == expected)
    KINTSUGI_RETURN_IF_ERROR(MirrorObjects(step));
  const GateState entered = gate_mode_ == GateMode::kOff ? GateState::kUpdating : GateState::kAtGate;
  if (!word().compare_exchange_strong(expected, GateWord::Pack(entered, step.value()))) [[unlikely]] {
    const GateWord found = GateWord::Unpack(expected);
    if (found.locked) return InterruptedStatus("BeginUpdate");
    return {StatusCode::kFailedPrecondition,
            "BeginUpdate(" + step.ToString() + ") after " + std::string(core::GateStateName(found.state)) + "(" +
                found.step.ToString() + "): updates are numbered one by one, and each is ended before the next"};
  }
  if (gate_mode_ == GateMode::kOff) return Status::Ok();
  if (const Status passed = PassGate(step); !passed.ok()) [[unlikely]]
    return AwaitVerdict(step);
  expected = GateWord::Pack(GateState::kAtGate, step.value());
  if (word().compare_exchange_strong(expected, GateWord::Pack(GateState::kUpdating, step.value()))) [[likely]]
    return Status::Ok();
  return AwaitVerdict(step);
}

Status Agent::Impl::PassGate(Step step) {
  if (gate_mode_ == GateMode::kTrainer) {
    const Status passed = gate_function_(step, gate_context_);
    // A gate that fails under the lock is the stop handler's doing; without one, nobody would ever bring the verdict.
    if (!passed.ok() && !Word().locked)
      SignalFault({core::FaultKind::kCommError,
                   "the gate of step " + step.ToString() + ": " + passed.message(),
                   {},
                   step,
                   false,
                   SteadyClock::SteadyNow()});
    return passed;
  }
  Post(core::TrainerAtGate{step});
  MutexLock lock(mutex_);
  changed_.Wait(lock, [&]() KINTSUGI_REQUIRES(mutex_) {
    return (gate_open_ && *gate_open_ == step) || end_ || (word().load() & GateWord::kLockBit);
  });
  if (gate_open_ && *gate_open_ == step) return Status::Ok();
  return InterruptedStatus("gate");
}

Status Agent::Impl::AwaitVerdict(Step step) {
  // Held at the gate with all inputs in hand: whether this update happens is decided for all ranks alike.
  MutexLock lock(mutex_);
  changed_.Wait(lock, [&]() KINTSUGI_REQUIRES(mutex_) { return verdict_ || end_; });
  const bool go_on = verdict_ && !end_ && verdict_->step_exists && verdict_->step == step;
  const GateState state = go_on ? GateState::kUpdating : GateState::kCommitted;
  word().store(GateWord::Pack(state, go_on ? step.value() : step.value() - 1) | GateWord::kLockBit);
  return go_on ? Status::Ok() : InterruptedStatus("gate");
}

Status Agent::Impl::EndUpdate(Step step, const DeviceFence* update) {
  uint64_t found = word().load(std::memory_order_relaxed);
  for (;;) {
    const bool updating = (found & ~GateWord::kLockBit) == GateWord::Pack(GateState::kUpdating, step.value());
    if (!updating) [[unlikely]] {
      const GateWord now = GateWord::Unpack(found);
      return {StatusCode::kFailedPrecondition,
              "EndUpdate(" + step.ToString() + ") while the rank is " + std::string(core::GateStateName(now.state)) +
                  "(" + now.step.ToString() + "): call BeginUpdate(" + step.ToString() + ") first"};
    }
    // Before the word says committed: who reads that looks for the fence next.
    if (update) update_fence_.store(update, std::memory_order_release);
    const uint64_t committed = GateWord::Pack(GateState::kCommitted, step.value()) | (found & GateWord::kLockBit);
    if (word().compare_exchange_weak(found, committed)) break;
  }
  if (found & GateWord::kLockBit) [[unlikely]]
    return InterruptedStatus("EndUpdate");
  return Status::Ok();
}

void Agent::Impl::TellActivity() {
  words().progress.store(WithActivity(words().progress.load(std::memory_order_relaxed), activity()),
                         std::memory_order_relaxed);
}

Status Agent::Impl::BeginActivity(Activity activity) {
  if (activity == Activity::kNone) return {StatusCode::kInvalidArgument, "BeginActivity: 'none' is no activity"};
  if (activities_.size() >= kActivitiesMax)
    return {StatusCode::kFailedPrecondition,
            "BeginActivity: " + std::to_string(kActivitiesMax) + " activities are open: is EndActivity missing?"};
  activities_.push_back(activity);
  TellActivity();
  return Status::Ok();
}

Status Agent::Impl::EndActivity() {
  if (activities_.empty()) return {StatusCode::kFailedPrecondition, "EndActivity without BeginActivity"};
  activities_.pop_back();
  TellActivity();
  return Status::Ok();
}

void Agent::Impl::SignalFault(core::FaultReport fault) {
  fault_told_ = true;
  Post(core::FaultSignal{std::move(fault)});
}

bool Agent::Impl::TearUpdate() {
  uint64_t found = word().load();
  for (;;) {
    const GateWord now = GateWord::Unpack(found);
    if (now.state != GateState::kUpdating) return false;
    const uint64_t torn = GateWord::Pack(GateState::kTorn, now.step.value()) | (found & GateWord::kLockBit);
    if (word().compare_exchange_weak(found, torn)) return true;
  }
}

Status Agent::Impl::ReportMemoryError(const std::vector<std::string>& keys, const std::string& text, ErrorTime when) {
  if (!running_) return {StatusCode::kFailedPrecondition, "a memory error was reported before Agent::Run: " + text};
  for (const std::string& key : keys)
    if (!registry_.tensors().count(key))
      return {StatusCode::kInvalidArgument, "memory error in tensor '" + key + "', which is not registered: " + text};
  // An update that the device has finished is no longer under way: the lock that follows at once must not find it torn.
  if (loop_thread_.load(std::memory_order_relaxed) == static_cast<uintptr_t>(pthread_self())) NoteSettled();
  core::FaultReport fault;
  fault.suspect_from =
      begun_steps_.SuspectFrom(when, Word().step.value(), UnpackProgress(words().progress.load()).step);
  fault.kind = keys.empty() ? core::FaultKind::kMemoryHigh : core::FaultKind::kMemoryLow;
  fault.damaged_keys = keys;
  fault.text = text;
  fault.step = Step(UnpackProgress(words().progress.load()).step);
  fault.since =
      when.known == ErrorTime::Known::kAt ? std::min(when.at, SteadyClock::SteadyNow()) : SteadyClock::SteadyNow();
  fault.in_update = TearUpdate();
  MarkState(core::StateMark::kWriting);
  SignalFault(std::move(fault));
  return InterruptedStatus("memory error");
}

Status Agent::Impl::EnterPhase(Step step, TrainPhase phase) {
  // After its commit a step is still marked: its parameters are gathered.
  if (step != Word().step) KINTSUGI_RETURN_IF_ERROR(CheckStep("EnterPhase", step));
  words().progress.store(PackProgress(step.value(), phase, activity()), std::memory_order_relaxed);
  if (slow_.count() > 0 && phase == TrainPhase::kForward) [[unlikely]]
    std::this_thread::sleep_for(slow_);
  if (!any_armed_.load(std::memory_order_relaxed)) [[likely]]
    return Status::Ok();
  return StrikeIfDue(step, [&](const Injection& fault) { return fault.collective == 0 && fault.phase == phase; });
}

Status Agent::Impl::BeginCollective() {
  const int number = ++collectives_;
  if (!any_armed_.load(std::memory_order_relaxed)) [[likely]]
    return Status::Ok();
  const Step step(UnpackProgress(words().progress.load(std::memory_order_relaxed)).step);
  return StrikeIfDue(step, [&](const Injection& fault) { return fault.collective == number; });
}

Status Agent::Impl::StrikeIfDue(Step step, const std::function<bool(const Injection&)>& is_here) {
  std::optional<std::pair<uint32_t, Injection>> due;
  {
    const MutexLock lock(mutex_);
    const auto found = std::find_if(armed_.begin(), armed_.end(), [&](const auto& armed) {
      return armed.second.step == step && is_here(armed.second);
    });
    if (found == armed_.end()) return Status::Ok();
    due = *found;
    armed_.erase(found);
    any_armed_ = !armed_.empty();
  }
  // Memory is damaged once all of it is: how long the poisoning takes is no part of the fault.
  if (due->second.kind == InjectionKind::kUce) Poison(due->second);
  if (due->second.kind == InjectionKind::kFlip) Flip(due->second);
  // Told before it strikes: the launcher's ledger must know even when this process is gone in the next instruction.
  words().fault_ns.store(static_cast<uint64_t>(SteadyClock::SteadyNow().nanoseconds()));
  words().fired_injections.fetch_or(1ull << (due->first & 63));
  return Strike(due->second, step);
}

Status Agent::Impl::Strike(const Injection& injection, Step step) {
  switch (injection.kind) {
    case InjectionKind::kKill:
      kill(getpid(), SIGKILL);
      pause();
      break;
    case InjectionKind::kExit:
      _exit(injection.exit_code);
    case InjectionKind::kFreeze:
      kill(getpid(), SIGSTOP);
      break;
    case InjectionKind::kSlow:
      slow_ = std::chrono::milliseconds(injection.slow_ms);
      break;
    case InjectionKind::kFlip:
      break;  // done, and nobody is told
    case InjectionKind::kThrow:
      injected_throw_ = true;
      return {StatusCode::kInternal, "injected exception: " + ToString(injection)};
    case InjectionKind::kHang:
      while (injection.until == HangUntil::kKill || Poll().ok())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return InterruptedStatus("injected hang");
    case InjectionKind::kDevice:
      return StrikeDevice(injection, step);
    case InjectionKind::kUce: {
      const bool low = injection.level == UceLevel::kLow;
      return ReportMemoryError(low ? KeysToPoison(injection) : std::vector<std::string>(),
                               "injected memory error at step " + step.ToString() + ": " + ToString(injection),
                               ErrorTime::Now());
    }
  }
  return Status::Ok();
}

}  // namespace kintsugi
