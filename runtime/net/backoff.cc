#include <algorithm>

#include "runtime/net/client.h"

namespace kintsugi::net {

Duration BackoffDelay(uint32_t attempt, Duration first, Duration max, double unit) {
  Duration delay = std::min(first, max);
  for (uint32_t i = 0; i < attempt && delay < max; ++i) delay = std::min(delay * 2, max);
  return delay - std::chrono::duration_cast<Duration>(delay * (unit / 2));
}

}  // namespace kintsugi::net
