#include "runtime/core/detector.h"

#include <algorithm>

namespace kintsugi::core {

void FailureDetector::Watch(Rank rank, TimePoint now) {
  if (static_cast<size_t>(rank.value()) >= watched_.size()) watched_.resize(static_cast<size_t>(rank.value()) + 1);
  At(rank) = {0, now};
  next_look_ = std::min(next_look_, now + silence_);
}

void FailureDetector::Forget(Rank rank) {
  if (Watches(rank)) At(rank) = {};
}

void FailureDetector::OnBeat(Rank rank, uint64_t count, TimePoint now) {
  if (Watches(rank) && At(rank).count != count) At(rank) = {count, now};
}

std::optional<Duration> FailureDetector::SinceBeat(Rank rank, TimePoint now) const {
  if (!Watches(rank)) return std::nullopt;
  return now - At(rank).last;
}

std::vector<Rank> FailureDetector::OnTick(TimePoint now) {
  // Half the limit without a tick of our own means that we, not they, were asleep: what goes beyond it does not count.
  const Duration gap = last_tick_ == TimePoint() ? Duration{0} : now - last_tick_;
  last_tick_ = now;
  if (gap <= silence_ / 2 && now < next_look_) return {};
  TimePoint earliest = TimePoint::Max();
  std::vector<Rank> silent;
  for (size_t r = 0; r < watched_.size(); ++r) {
    Watched& watched = watched_[r];
    if (watched.last == TimePoint::Max()) continue;
    if (gap > silence_ / 2) watched.last = std::min(now, watched.last + (gap - silence_ / 2));
    if (now - watched.last >= silence_) silent.push_back(Rank(static_cast<int32_t>(r)));
    earliest = std::min(earliest, watched.last);
  }
  next_look_ = earliest == TimePoint::Max() ? earliest : earliest + silence_;
  return silent;
}

}  // namespace kintsugi::core
