#include "runtime/agent/device_commits.h"

#include <string>
#include <thread>

namespace kintsugi {
namespace {

using core::GateState;

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

Status DeviceCommits::Await(const DeviceFence& fence, const char* what) const {
  const TimePoint begin = SteadyClock::SteadyNow();
  for (;;) {
    const Result<bool> done = fence.IsDone();
    if (!done.ok()) return done.status().Annotate(what);
    if (*done) return Status::Ok();
    if (gate_.Word().locked || inbox_.ending()) return Interrupted(what);
    PauseSince(begin, SteadyClock::SteadyNow());
  }
}

Status DeviceCommits::AwaitNewest(const DeviceFence& fence) {
  KINTSUGI_RETURN_IF_ERROR(Await(fence, "update before this one"));
  gate_.DropFence();
  return Status::Ok();
}

Status DeviceCommits::Settle() {
  const DeviceFence* const fence = gate_.fence();
  if (!fence) return Status::Ok();
  const Step step = gate_.Word().step;
  const Duration limit = self_.options.device_limit;
  const TimePoint begin = SteadyClock::SteadyNow();
  Status failed;
  for (;;) {
    const Result<bool> done = fence->IsDone();
    if (!done.ok()) failed = done.status();
    const TimePoint now = SteadyClock::SteadyNow();
    if (done.ok() && !*done && now - begin >= limit)
      failed = {StatusCode::kDeadlineExceeded, "its device did not finish it: elapsed " +
                                                   std::to_string(static_cast<int64_t>(ToMilliseconds(now - begin))) +
                                                   " ms, limit " +
                                                   std::to_string(static_cast<int64_t>(ToMilliseconds(limit))) + " ms"};
    if (!failed.ok() || *done || inbox_.ending()) break;
    PauseSince(begin, now);
  }
  // The word first: who finds no fence must not find the update committed.
  if (!failed.ok() && gate_.Word().state == GateState::kCommitted) gate_.MoveTo(GateState::kTorn, step);
  gate_.DropFence();
  return failed.Annotate("update " + step.ToString());
}

void DeviceCommits::NoteSettled() {
  const DeviceFence* const fence = gate_.fence();
  if (!fence) return;
  const Result<bool> done = fence->IsDone();
  if (done.ok() && *done) gate_.DropFence();
}

}  // namespace kintsugi
