#include "integrations/examples/byte_lm/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kintsugi::byte_lm {

double LearningRate(const TrainConfig& config, int64_t step) {
  const double warmup = static_cast<double>(config.warmup_steps);
  if (step < config.warmup_steps) return config.learning_rate_max * static_cast<double>(step) / warmup;
  const double rest = static_cast<double>(std::max<int64_t>(config.steps - config.warmup_steps, 1));
  const double done = std::min(1.0, (static_cast<double>(step) - warmup) / rest);
  const double share = 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return config.learning_rate_min + (config.learning_rate_max - config.learning_rate_min) * share;
}

}  // namespace kintsugi::byte_lm
