// Round numbers for an axis.
#pragma once

#include <vector>

namespace kintsugi {

struct Axis {
  std::vector<double> ticks;  // ascending, all within [low, high]
  int decimals = 0;           // that tell neighbours apart
};

// About `count` multiples of 1, 2 or 5 times a power of ten between `low` and `high`. REQUIRES: both finite, low <
// high, count >= 1.
Axis RoundTicks(double low, double high, int count);

}  // namespace kintsugi
