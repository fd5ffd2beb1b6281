// Allowance: so many at once, and one more each so often (a token bucket).
//
// Threads: none; pure.
#pragma once

#include <algorithm>

#include "runtime/base/clock.h"

namespace kintsugi::observe {

class Allowance {
 public:
  Allowance(int at_once, Duration one_more_each) : at_once_(at_once), each_(one_more_each), left_(at_once) {}

  bool Has(TimePoint now) { return Refill(now), left_ > 0; }
  // False: there is none left.
  bool Take(TimePoint now) {
    if (!Has(now)) return false;
    --left_;
    return true;
  }

 private:
  void Refill(TimePoint now) {
    if (left_ == at_once_) since_ = now;
    const int64_t more = (now - since_) / each_;
    if (more <= 0) return;
    left_ = static_cast<int>(std::min<int64_t>(at_once_, left_ + more));
    since_ = since_ + each_ * more;
  }

  const int at_once_;
  const Duration each_;
  int left_;
  TimePoint since_;
};

}  // namespace kintsugi::observe
