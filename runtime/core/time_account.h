// TimeAccount: where a run's time went. What was useful is what is left of the whole.
//
// Threads: none; a value.
#pragma once

#include <algorithm>

#include "runtime/base/clock.h"

namespace kintsugi {

struct TimeAccount {
  Duration total{};
  Duration starting{};  // until all ranks were in their loops first
  Duration down{};      // from each fault until all ranks stepped again
  Duration redone{};    // spent on steps, or parts of one, that were thrown away
  Duration saving{};    // all ranks stood at a save point, while a checkpoint was written or replicas were compared
  Duration paused{};    // all ranks stood still because an operator asked for it; never part of the others
  Duration useful() const { return total - starting - down - redone - saving - paused; }
  // The useful share of the whole, 0 to 1.
  double goodput() const {
    if (total.count() <= 0) return 0;
    return std::clamp(static_cast<double>(useful().count()) / static_cast<double>(total.count()), 0.0, 1.0);
  }
  TimeAccount& operator+=(const TimeAccount& more) {
    for (Duration TimeAccount::*share : {&TimeAccount::total, &TimeAccount::starting, &TimeAccount::down,
                                         &TimeAccount::redone, &TimeAccount::saving, &TimeAccount::paused})
      this->*share += more.*share;
    return *this;
  }
};

}  // namespace kintsugi
