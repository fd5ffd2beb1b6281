#include "runtime/launcher/spare_keeper.h"

namespace kintsugi {

bool SpareKeeper::MayStart(int running, bool computing, TimePoint now) const {
  if (running >= wanted_ || gave_up() || rank_started_ == TimePoint::Max()) return false;
  return computing || now - rank_started_ >= kCalmLimit;
}

void SpareKeeper::OnDeath(Duration lived) {
  if (lived >= kProven) deaths_ = 0;
  ++deaths_;
}

}  // namespace kintsugi
