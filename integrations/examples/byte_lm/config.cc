#include "integrations/examples/byte_lm/config.h"

#include <cmath>
#include <string>

namespace kintsugi::byte_lm {
namespace {

Status Wrong(const std::string& field, const std::string& value, const std::string& remedy) {
  return Status(StatusCode::kInvalidArgument, "byte_lm: " + field + " is " + value + "; " + remedy);
}

Status AtLeastOne(const std::string& field, int64_t value) {
  if (value >= 1) return Status::Ok();
  return Wrong(field, std::to_string(value), "give a number of at least 1");
}

// True for NaN too, which compares false with everything.
bool Outside(double value, double low, double high) { return !(value >= low && value < high); }

Status Fraction(const std::string& field, double value) {
  if (!Outside(value, 0.0, 1.0)) return Status::Ok();
  return Wrong(field, std::to_string(value), "give a number from 0 up to, but not including, 1");
}

Status NotNegative(const std::string& field, double value) {
  if (!Outside(value, 0.0, INFINITY)) return Status::Ok();
  return Wrong(field, std::to_string(value), "give a finite number that is not negative");
}

}  // namespace

Status Validate(const ModelConfig& config, int tensor_parallel) {
  if (config.vocabulary != 256) {
    return Wrong("vocabulary", std::to_string(config.vocabulary), "a byte has 256 values");
  }
  KINTSUGI_RETURN_IF_ERROR(AtLeastOne("context", config.context));
  KINTSUGI_RETURN_IF_ERROR(AtLeastOne("layers", config.layers));
  KINTSUGI_RETURN_IF_ERROR(AtLeastOne("heads", config.heads));
  KINTSUGI_RETURN_IF_ERROR(AtLeastOne("width", config.width));
  KINTSUGI_RETURN_IF_ERROR(AtLeastOne("hidden_multiple", config.hidden_multiple));
  KINTSUGI_RETURN_IF_ERROR(Fraction("dropout", config.dropout));
  KINTSUGI_RETURN_IF_ERROR(NotNegative("layer_norm_epsilon", config.layer_norm_epsilon));
  if (config.width % config.heads != 0) {
    return Wrong("width", std::to_string(config.width), "it must be a multiple of heads, which is " +
                                                            std::to_string(config.heads));
  }
  if (tensor_parallel != 1 && tensor_parallel != 2) {
    return Wrong("tensor_parallel", std::to_string(tensor_parallel), "choose 1 or 2");
  }
  if (config.heads % tensor_parallel != 0 || config.Hidden() % tensor_parallel != 0) {
    return Wrong("heads", std::to_string(config.heads) + " and the hidden width " + std::to_string(config.Hidden()),
                 "both must be multiples of the tensor-parallel size, which is " + std::to_string(tensor_parallel));
  }
  return Status::Ok();
}

Status Validate(const TrainConfig& config) {
  KINTSUGI_RETURN_IF_ERROR(AtLeastOne("steps", config.steps));
  KINTSUGI_RETURN_IF_ERROR(AtLeastOne("batch", config.batch));
  if (config.warmup_steps < 0 || config.warmup_steps > config.steps) {
    return Wrong("warmup_steps", std::to_string(config.warmup_steps),
                 "give 0 up to steps, which is " + std::to_string(config.steps));
  }
  KINTSUGI_RETURN_IF_ERROR(NotNegative("learning_rate_min", config.learning_rate_min));
  KINTSUGI_RETURN_IF_ERROR(NotNegative("learning_rate_max", config.learning_rate_max));
  if (config.learning_rate_min > config.learning_rate_max) {
    return Wrong("learning_rate_min", std::to_string(config.learning_rate_min),
                 "it must not exceed learning_rate_max, which is " + std::to_string(config.learning_rate_max));
  }
  KINTSUGI_RETURN_IF_ERROR(NotNegative("weight_decay", config.weight_decay));
  KINTSUGI_RETURN_IF_ERROR(NotNegative("gradient_clip", config.gradient_clip));
  KINTSUGI_RETURN_IF_ERROR(Fraction("beta1", config.beta1));
  KINTSUGI_RETURN_IF_ERROR(Fraction("beta2", config.beta2));
  return NotNegative("epsilon", config.epsilon);
}

}  // namespace kintsugi::byte_lm
