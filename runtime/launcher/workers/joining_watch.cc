#include "runtime/launcher/workers/joining_watch.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {

void JoiningWatch::Look(TimePoint now) {
  if (now - std::exchange(last_look_, now) > kAsleep) awake_since_ = now;
}

bool JoiningWatch::IsFrozen(Rank rank, const Seen& seen, TimePoint now) {
  KINTSUGI_CHECK(limit_ > Duration(), "rank " + rank.ToString() + " is watched without a limit");
  if (seen.step > 0) return false;
  std::optional<TimePoint> since = seen.beat;
  if (!since) {
    if (!seen.stopped()) {
      Forget(rank);
      return false;
    }
    since = stopped_since_.emplace(rank, now).first->second;
  }
  return now - std::max(*since, awake_since_) >= limit_;
}

}  // namespace kintsugi
