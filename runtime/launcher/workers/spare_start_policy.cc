#include "runtime/launcher/workers/spare_start_policy.h"

namespace kintsugi {

bool SpareStartPolicy::MayStart(int running, bool computing, TimePoint now) const {
  if (running >= wanted_ || gave_up() || rank_started_ == TimePoint::Max()) return false;
  return computing || now - rank_started_ >= kCalmLimit;
}

void SpareStartPolicy::OnDeath(Duration lived) {
  if (lived >= kProven) deaths_ = 0;
  ++deaths_;
}

}  // namespace kintsugi
