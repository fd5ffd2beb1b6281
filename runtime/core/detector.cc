#include "runtime/core/detector.h"

#include <algorithm>

namespace kintsugi::core {

void FailureDetector::OnBeat(Rank rank, uint64_t count, TimePoint now) {
  const auto found = watched_.find(rank);
  if (found == watched_.end() || found->second.count == count) return;
  found->second = {count, now};
}

std::vector<Rank> FailureDetector::OnTick(TimePoint now) {
  // Half the limit without a tick of our own means that we, not they, were asleep: what goes beyond it does not count.
  const Duration gap = last_tick_ == TimePoint() ? Duration{0} : now - last_tick_;
  last_tick_ = now;
  std::vector<Rank> silent;
  for (auto& [rank, watched] : watched_) {
    if (gap > silence_ / 2) watched.last = std::min(now, watched.last + (gap - silence_ / 2));
    if (now - watched.last >= silence_) silent.push_back(rank);
  }
  return silent;
}

Duration FailureDetector::SilentFor(Rank rank, TimePoint now) const {
  const auto found = watched_.find(rank);
  return found == watched_.end() ? Duration{0} : now - found->second.last;
}

}  // namespace kintsugi::core
