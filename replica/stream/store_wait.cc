#include "replica/stream/store_wait.h"

#include <algorithm>

namespace kintsugi {

Result<std::vector<uint8_t>> GetUnlessStopped(Store& store, const std::string& key, TimePoint deadline,
                                              const std::function<bool()>& stopped) {
  constexpr Duration kSlice = std::chrono::milliseconds(50);
  const TimePoint start = SteadyClock::SteadyNow();
  for (;;) {
    if (stopped()) return Status(StatusCode::kCancelled, "waiting for '" + key + "' was aborted");
    auto value = store.Get(key, std::min(deadline, SteadyClock::SteadyNow() + kSlice));
    if (value.ok() || value.status().code() != StatusCode::kDeadlineExceeded) return value;
    const TimePoint now = SteadyClock::SteadyNow();
    if (now < deadline) continue;
    return Status(StatusCode::kDeadlineExceeded,
                  "nobody published '" + key + "' within " +
                      std::to_string(static_cast<int64_t>(ToMilliseconds(now - start))) + " ms, limit " +
                      std::to_string(static_cast<int64_t>(ToMilliseconds(deadline - start))) + " ms");
  }
}

}  // namespace kintsugi
