// SecondsHistogram: how often something took how long, in buckets that fit steps and repairs alike.
//
// Threads: none.
// Errors: none.
// Invariants: its size is fixed; counts only grow.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/base/clock.h"

namespace kintsugi {

class SecondsHistogram {
 public:
  // Upper bounds in seconds, each included; beyond the last one everything counts as longer.
  static constexpr std::array<double, 18> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                     1,     2.5,    5,     10,   25,    50,   100, 250,  500};

  void Observe(Duration took) {
    const double seconds = std::chrono::duration<double>(took).count();
    ++counts_[static_cast<size_t>(std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin())];
    sum_ += seconds;
  }
  // How many fell into each bucket; the last one has what was longer than every bound.
  const std::array<uint64_t, kBounds.size() + 1>& counts() const { return counts_; }
  double sum() const { return sum_; }

 private:
  std::array<uint64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
};

}  // namespace kintsugi
