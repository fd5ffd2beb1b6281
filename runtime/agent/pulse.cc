#include "runtime/agent/pulse.h"

#include "runtime/core/hang_detector.h"

namespace kintsugi {
namespace {

constexpr Duration kInterval = std::chrono::milliseconds(50);

}  // namespace

void Pulse::Beat() {
  SharedWords& words = page_.words();
  const uint64_t count = words.beat.fetch_add(1, std::memory_order_relaxed) + 1;
  words.beat_ns.store(static_cast<uint64_t>(SteadyClock::SteadyNow().nanoseconds()), std::memory_order_relaxed);
  if (connection_.speaks_alone() && thread_.has_core()) {
    const uint64_t progress = words.progress.load(std::memory_order_relaxed);
    connection_.Send(thread_.core().generation(), core::Beat{count, core::PlaceOf(progress, gate_.Word())});
  }
  CheckActivity();
  timer_.expires_after(kInterval);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !inbox_.ending()) Beat();
  });
}

// Within an incident its end is waited for by the StopWatch, which goes by the same limit.
void Pulse::CheckActivity() {
  const ActivityClock::Reading reading = activities_.Read();
  const TimePoint now = SteadyClock::SteadyNow();
  if (now < reading.deadline || reading.deadline == told_ || !thread_.has_core() || gate_.Word().locked) return;
  told_ = reading.deadline;
  core::FaultReport fault;
  fault.kind = core::FaultKind::kHang;
  fault.step = page_.begun();
  fault.since = reading.deadline;
  const Progress place = UnpackProgress(page_.words().progress.load(std::memory_order_relaxed));
  fault.text = "stood in " + std::string(ActivityName(place.activity)) + " for longer than its limit, " +
               std::to_string(static_cast<int64_t>(ToMilliseconds(reading.deadline - reading.began))) + " ms since " +
               std::string(ActivityName(place.activity)) + " began, at step " + fault.step.ToString();
  thread_.Step(core::FaultSignal{std::move(fault)});
}

}  // namespace kintsugi
