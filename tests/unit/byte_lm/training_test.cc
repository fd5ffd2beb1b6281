// It learns: on real text the loss falls far below the uniform distribution's 5.545 nats.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "tests/unit/byte_lm/cluster.h"

namespace kintsugi::byte_lm {
namespace {

TEST(Training, LossOnTheLicenceTextsFallsWellBelowUniform) {
  const Result<TextData> text = TextData::Load({});
  ASSERT_TRUE(text.ok()) << text.status().ToString() << " (package base-files carries these texts)";
  TrainerOptions options;
  options.train.steps = 250;
  Cluster world(options, *text, 1, 1, 1);
  const Result<std::vector<double>> losses = world.Train(1, 250);
  ASSERT_TRUE(losses.ok()) << losses.status().ToString();
  EXPECT_GT(losses->front(), 5.0);
  EXPECT_LT(losses->front(), 6.2);
  const double last_steps = std::accumulate(losses->end() - 20, losses->end(), 0.0) / 20;
  EXPECT_LT(last_steps, 2.7) << "a predictor of single byte frequencies reaches about 3.2";
}

// A text with a rule that only attention can find: every byte equals the one eight places before it.
TEST(Training, AttentionLearnsToCopyFromAfar) {
  std::string bytes;
  Random random(21);
  constexpr size_t kContext = 32, kWindows = 2000, kPeriod = 8;
  for (size_t window = 0; window < kWindows; ++window) {
    std::string pattern;
    for (size_t i = 0; i < kPeriod; ++i) pattern.push_back(static_cast<char>('a' + random.Below(16)));
    for (size_t i = 0; i < kContext; ++i) bytes.push_back(pattern[i % kPeriod]);
  }
  TrainerOptions options;
  options.model.context = kContext;
  options.model.layers = 1;
  options.model.dropout = 0;
  options.train.steps = 300;
  options.train.batch = 16;
  const TextData text = TextData::FromBytes(bytes);
  Cluster world(options, text, 1, 1, 1);
  const Result<std::vector<double>> losses = world.Train(1, 300);
  ASSERT_TRUE(losses.ok());
  // Without looking back nothing beats log(16) = 2.77; with it only the first eight of each window stay unknown (0.69).
  EXPECT_LT(losses->back(), 1.6);
}

}  // namespace
}  // namespace kintsugi::byte_lm
