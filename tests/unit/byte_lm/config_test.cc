#include "integrations/examples/byte_lm/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace kintsugi::byte_lm {
namespace {

void ExpectRefusal(const Status& status, const std::string& field) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(field), std::string::npos) << status.ToString();
}

TEST(ModelConfig, DefaultsAreValidForBothTensorParallelSizes) {
  EXPECT_TRUE(Validate(ModelConfig{}, 1).ok());
  EXPECT_TRUE(Validate(ModelConfig{}, 2).ok());
}

TEST(ModelConfig, RefusalsNameTheField) {
  const auto with = [](auto change, int tp = 1) {
    ModelConfig config;
    change(config);
    return Validate(config, tp);
  };
  ExpectRefusal(with([](ModelConfig& c) { c.vocabulary = 255; }), "vocabulary");
  ExpectRefusal(with([](ModelConfig& c) { c.context = 0; }), "context");
  ExpectRefusal(with([](ModelConfig& c) { c.layers = 0; }), "layers");
  ExpectRefusal(with([](ModelConfig& c) { c.heads = -1; }), "heads");
  ExpectRefusal(with([](ModelConfig& c) { c.width = 63; }), "width");
  ExpectRefusal(with([](ModelConfig& c) { c.hidden_multiple = 0; }), "hidden_multiple");
  ExpectRefusal(with([](ModelConfig& c) { c.dropout = 1.0; }), "dropout");
  ExpectRefusal(with([](ModelConfig& c) { c.dropout = NAN; }), "dropout");
  ExpectRefusal(with([](ModelConfig& c) { c.layer_norm_epsilon = -1; }), "layer_norm_epsilon");
  ExpectRefusal(with([](ModelConfig& c) { c.heads = 1; }, 2), "heads");
  ExpectRefusal(with([](ModelConfig&) {}, 3), "tensor_parallel");
}

TEST(TrainConfig, RefusalsNameTheField) {
  const auto with = [](auto change) {
    TrainConfig config;
    change(config);
    return Validate(config);
  };
  EXPECT_TRUE(with([](TrainConfig&) {}).ok());
  ExpectRefusal(with([](TrainConfig& c) { c.steps = 0; }), "steps");
  ExpectRefusal(with([](TrainConfig& c) { c.batch = 0; }), "batch");
  ExpectRefusal(with([](TrainConfig& c) { c.warmup_steps = c.steps + 1; }), "warmup_steps");
  ExpectRefusal(with([](TrainConfig& c) { c.learning_rate_max = INFINITY; }), "learning_rate_max");
  ExpectRefusal(with([](TrainConfig& c) { c.learning_rate_min = 2 * c.learning_rate_max; }), "learning_rate_min");
  ExpectRefusal(with([](TrainConfig& c) { c.weight_decay = -1; }), "weight_decay");
  ExpectRefusal(with([](TrainConfig& c) { c.gradient_clip = NAN; }), "gradient_clip");
  ExpectRefusal(with([](TrainConfig& c) { c.beta1 = 1; }), "beta1");
  ExpectRefusal(with([](TrainConfig& c) { c.beta2 = -0.1; }), "beta2");
  ExpectRefusal(with([](TrainConfig& c) { c.epsilon = -1; }), "epsilon");
}

}  // namespace
}  // namespace kintsugi::byte_lm
