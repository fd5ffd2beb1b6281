// The device's half of a commit: what the trainer's thread waits for, and what becomes of an update that does not come
// to an end on its device.
#include <thread>

#include "runtime/agent/impl.h"

namespace kintsugi {
namespace {

using core::GateState;
using core::GateWord;

// A device is asked this often; at first without a pause, since its work is usually nearly done.
constexpr Duration kSpin = std::chrono::microseconds(50);
constexpr Duration kPause = std::chrono::microseconds(20);

void PauseSince(TimePoint begin, TimePoint now) {
  if (now - begin < kSpin)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(kPause);
}

}  // namespace

Status Agent::Impl::AwaitFence(const DeviceFence& fence, const char* what) const {
  const TimePoint begin = SteadyClock::SteadyNow();
  for (;;) {
    const Result<bool> done = fence.IsDone();
    if (!done.ok()) return done.status().Annotate(what);
    if (*done) return Status::Ok();
    if (Word().locked || ended_) return InterruptedStatus(what);
    PauseSince(begin, SteadyClock::SteadyNow());
  }
}

// Trainer's thread, before it parks. Not ended by an incident: what is under way needs nobody else.
Status Agent::Impl::SettleUpdate() {
  const DeviceFence* const fence = update_fence_.load(std::memory_order_relaxed);
  if (!fence) return Status::Ok();
  const Step step = Word().step;
  const TimePoint begin = SteadyClock::SteadyNow();
  Status failed;
  for (;;) {
    const Result<bool> done = fence->IsDone();
    if (!done.ok()) failed = done.status();
    const TimePoint now = SteadyClock::SteadyNow();
    if (done.ok() && !*done && now - begin >= options_.device_limit)
      failed = {StatusCode::kDeadlineExceeded,
                "its device did not finish it: elapsed " +
                    std::to_string(static_cast<int64_t>(ToMilliseconds(now - begin))) + " ms, limit " +
                    std::to_string(static_cast<int64_t>(ToMilliseconds(options_.device_limit))) + " ms"};
    if (!failed.ok() || *done || ended_) break;
    PauseSince(begin, now);
  }
  // The word first: who finds no fence must not find the update committed.
  if (!failed.ok() && Word().state == GateState::kCommitted) MoveWord(GateState::kTorn, step);
  update_fence_.store(nullptr, std::memory_order_release);
  return failed.Annotate("update " + step.ToString());
}

// Trainer's thread, at the top of a step: what is done is said, so that a fault in this step finds a committed update
// and not one under way. An error waits for the next update or incident, which ask again.
void Agent::Impl::NoteSettled() {
  const DeviceFence* const fence = update_fence_.load(std::memory_order_relaxed);
  if (!fence) return;
  const Result<bool> done = fence->IsDone();
  if (done.ok() && *done) update_fence_.store(nullptr, std::memory_order_release);
}

Result<bool> Agent::Impl::IsSettled() const {
  const DeviceFence* const fence = update_fence_.load(std::memory_order_acquire);
  return fence ? fence->IsDone() : true;
}

}  // namespace kintsugi
