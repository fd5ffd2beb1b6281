// The exact backward pass against central differences, in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "integrations/examples/byte_lm/initialize.h"
#include "integrations/examples/byte_lm/model.h"
#include "runtime/base/random.h"

namespace kintsugi::byte_lm {
namespace {

ModelConfig SmallConfig(double dropout) {
  ModelConfig config;
  config.context = 6;
  config.layers = 2;
  config.heads = 2;
  config.width = 8;
  config.hidden_multiple = 3;
  config.dropout = dropout;
  return config;
}

class GradientCheck {
 public:
  explicit GradientCheck(double dropout)
      : config_(SmallConfig(dropout)),
        table_(config_, 0, 1, 1),
        model_(config_, table_, kBatch),
        parameters_(table_.flat_size()),
        gradients_(table_.flat_size()) {
    InitializeParameters(table_, 7, parameters_.data());
    Random random(11);
    // Away from the start, where biases are zero and norms are one, so that no term hides.
    for (const Parameter& p : table_.parameters()) {
      for (size_t i = 0; i < p.count; ++i) parameters_[p.offset + i] += 0.3 * (random.Unit() - 0.5);
    }
    for (int64_t i = 0; i < kBatch * (config_.context + 1); ++i) {
      windows_.push_back(static_cast<uint8_t>(random.Below(256)));
    }
  }

  double Loss() {
    // The same masks for every evaluation.
    DropoutGenerator dropout(3, 0, 1);
    double loss = 0;
    EXPECT_TRUE(model_.Forward(parameters_.data(), windows_, &dropout, one_, &loss).ok());
    return loss;
  }

  void Backward() { EXPECT_TRUE(model_.Backward(parameters_.data(), one_, gradients_.data()).ok()); }

  double Numeric(size_t element) {
    constexpr double kStep = 1e-5;
    const double kept = parameters_[element];
    parameters_[element] = kept + kStep;
    const double above = Loss();
    parameters_[element] = kept - kStep;
    const double below = Loss();
    parameters_[element] = kept;
    return (above - below) / (2 * kStep);
  }

  // Places spread over the parameter; of the token embedding, places that the batch really uses.
  size_t Element(size_t index, size_t sample) const {
    const Parameter& p = table_[index];
    if (index != table_.token_embedding) return p.offset + sample * 7919 % p.count;
    const size_t width = static_cast<size_t>(config_.width);
    return p.offset + windows_[sample] * width + sample % width;
  }

  const ParameterTable& table() const { return table_; }
  double gradient(size_t element) const { return gradients_[element]; }

 private:
  static constexpr int64_t kBatch = 3;
  ModelConfig config_;
  ParameterTable table_;
  Model<double> model_;
  AlignedBuffer<double> parameters_, gradients_;
  std::vector<uint8_t> windows_;
  SingleRank one_;
};

void ExpectExactGradients(double dropout) {
  constexpr size_t kSamples = 5;
  GradientCheck check(dropout);
  check.Loss();
  check.Backward();
  for (size_t i = 0; i < check.table().parameters().size(); ++i) {
    double largest = 0;
    for (size_t sample = 0; sample < kSamples; ++sample) {
      const size_t element = check.Element(i, sample);
      const double exact = check.gradient(element);
      largest = std::max(largest, std::fabs(exact));
      EXPECT_NEAR(exact, check.Numeric(element), 1e-8 + 1e-6 * std::fabs(exact))
          << check.table()[i].name << " element " << element - check.table()[i].offset;
    }
    EXPECT_GT(largest, 1e-6) << check.table()[i].name << ": all sampled gradients vanish, so nothing was compared";
  }
}

TEST(Model, GradientOfEveryParameterMatchesFiniteDifferences) { ExpectExactGradients(0.0); }

TEST(Model, GradientThroughDropoutMatchesFiniteDifferences) { ExpectExactGradients(0.25); }

TEST(Model, PredictionsDoNotSeeTheFuture) {
  const ModelConfig config = SmallConfig(0.0);
  const ParameterTable table(config, 0, 1, 1);
  AlignedBuffer<float> parameters(table.flat_size());
  InitializeParameters(table, 5, parameters.data());
  Model<float> model(config, table, 1);
  SingleRank one;
  double loss = 0;
  std::vector<uint8_t> window = {10, 20, 30, 40, 50, 60, 70};
  ASSERT_TRUE(model.Forward(parameters.data(), window, nullptr, one, &loss).ok());
  const std::span<const float> first = model.Logits(0, 2);
  const std::vector<float> before(first.begin(), first.end());
  const std::span<const float> last = model.Logits(0, 5);
  const std::vector<float> last_before(last.begin(), last.end());
  window[3] = 200;
  ASSERT_TRUE(model.Forward(parameters.data(), window, nullptr, one, &loss).ok());
  EXPECT_TRUE(std::equal(before.begin(), before.end(), model.Logits(0, 2).begin()));
  EXPECT_FALSE(std::equal(last_before.begin(), last_before.end(), model.Logits(0, 5).begin()));
}

TEST(Model, UniformLogitsCostTheLogarithmOfTheVocabulary) {
  const ModelConfig config = SmallConfig(0.0);
  const ParameterTable table(config, 0, 1, 1);
  AlignedBuffer<float> parameters(table.flat_size());
  InitializeParameters(table, 5, parameters.data());
  const Parameter& head = table[table.head_weight];
  std::fill_n(parameters.data() + head.offset, head.count, 0.0f);
  Model<float> model(config, table, 1);
  SingleRank one;
  double loss = 0;
  ASSERT_TRUE(model.Forward(parameters.data(), std::vector<uint8_t>(7, 'x'), nullptr, one, &loss).ok());
  EXPECT_NEAR(loss, std::log(256.0), 1e-6);
}

}  // namespace
}  // namespace kintsugi::byte_lm
