#include "tools/watch/wait_limits.h"

#include <algorithm>

namespace kintsugi::watch {

namespace {

// A program whose sizes are new in every step is not remembered for ever.
constexpr size_t kAlikeMost = 4096;

}  // namespace

void WaitLimits::Learn(const std::string& group, const CollectiveCall& call, Duration waited) {
  if (waits_.size() >= kAlikeMost) waits_.clear();
  Waits& waits = waits_[AlikeOf(group, call)];
  waits.newest[waits.count++ % kNewest] = waited;
}

Duration WaitLimits::LimitOf(const std::string& group, const CollectiveCall& call) const {
  const auto found = waits_.find(AlikeOf(group, call));
  if (found == waits_.end()) return limits_.first;
  auto sorted = found->second.newest;
  const size_t count = std::min(found->second.count, kNewest);
  std::sort(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(count));
  const Duration usual = sorted[count == 1 ? 0 : count - 2];
  const Duration wanted(static_cast<int64_t>(limits_.factor * static_cast<double>(usual.count())));
  return std::clamp(wanted, limits_.least, std::max(limits_.least, limits_.most));
}

}  // namespace kintsugi::watch
