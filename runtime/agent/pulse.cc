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
  timer_.expires_after(kInterval);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !inbox_.ending()) Beat();
  });
}

}  // namespace kintsugi
