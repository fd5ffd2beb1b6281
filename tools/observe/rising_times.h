// RisingTimes: where a run's time went, as counters. A share of an account may shrink: a save becomes part of what is
// thrown away, a gap heals that had stopped nobody. A reader of metrics takes a counter that falls for one that began
// anew, so that a share that shrinks stands still here until it has caught up.
//
// Threads: none.
// Errors: none.
// Invariants: no share falls, but where the account itself begins anew, with another start of the run.
#pragma once

#include <algorithm>

#include "runtime/core/time_account.h"

namespace kintsugi::observe {

class RisingTimes {
 public:
  void Take(const TimeAccount& now) {
    if (now.total < risen_.total) risen_ = {};
    for (Duration TimeAccount::*share : {&TimeAccount::total, &TimeAccount::starting, &TimeAccount::down,
                                         &TimeAccount::redone, &TimeAccount::saving, &TimeAccount::paused})
      risen_.*share = std::max(risen_.*share, now.*share);
  }
  const TimeAccount& risen() const { return risen_; }

 private:
  TimeAccount risen_;
};

}  // namespace kintsugi::observe
