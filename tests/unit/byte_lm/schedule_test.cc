#include "integrations/examples/byte_lm/schedule.h"

#include <gtest/gtest.h>

namespace kintsugi::byte_lm {
namespace {

TrainConfig Config() {
  TrainConfig config;
  config.steps = 100;
  config.warmup_steps = 10;
  config.learning_rate_max = 1.0;
  config.learning_rate_min = 0.1;
  return config;
}

TEST(Schedule, RisesLinearlyDuringTheWarmup) {
  EXPECT_DOUBLE_EQ(LearningRate(Config(), 1), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(Config(), 5), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(Config(), 10), 1.0);
}

TEST(Schedule, FallsAlongACosineToTheMinimumAndStaysThere) {
  EXPECT_NEAR(LearningRate(Config(), 55), 0.55, 1e-12);
  for (int64_t step = 11; step <= 100; ++step) EXPECT_LT(LearningRate(Config(), step), LearningRate(Config(), step - 1));
  EXPECT_NEAR(LearningRate(Config(), 100), 0.1, 1e-12);
  EXPECT_NEAR(LearningRate(Config(), 1000), 0.1, 1e-12);
}

TEST(Schedule, WorksWithoutWarmupAndWithNothingElse) {
  TrainConfig config = Config();
  config.warmup_steps = 0;
  EXPECT_LT(LearningRate(config, 1), 1.0);
  EXPECT_GT(LearningRate(config, 1), 0.99);
  config.warmup_steps = config.steps;
  EXPECT_DOUBLE_EQ(LearningRate(config, 100), 1.0);
  EXPECT_NEAR(LearningRate(config, 101), 0.1, 1e-12);
}

}  // namespace
}  // namespace kintsugi::byte_lm
