#include "tools/report/ticks.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"

namespace kintsugi {

Axis RoundTicks(double low, double high, int count) {
  KINTSUGI_CHECK(std::isfinite(low) && std::isfinite(high) && low < high && count >= 1, "an axis needs a range");
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double mantissa = rough / power;
  const double step = power * (mantissa <= 1 ? 1 : mantissa <= 2 ? 2 : mantissa <= 5 ? 5 : 10);
  Axis axis;
  axis.decimals = std::clamp(static_cast<int>(-std::floor(std::log10(step) + 1e-9)), 0, 12);
  const double first = std::ceil(low / step - 1e-9);
  // Counted in whole steps: adding up would drift. The bound holds even where a step vanishes beside its operands.
  for (int i = 0; i <= 4 * count + 4; ++i) {
    const double tick = (first + i) * step;
    if (tick > high + step * 1e-9) break;
    axis.ticks.push_back(std::clamp(tick, low, high));
  }
  return axis;
}

}  // namespace kintsugi
