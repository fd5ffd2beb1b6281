#include "integrations/examples/byte_lm/sampler.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "integrations/examples/byte_lm/seeds.h"

namespace kintsugi::byte_lm {
namespace {

// Draws from softmax(logits / temperature).
uint8_t Draw(std::span<const float> logits, double temperature, Random& random) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature <= 0.0) return static_cast<uint8_t>(largest - logits.begin());
  std::vector<double> weights(logits.size());
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    weights[i] = std::exp((static_cast<double>(logits[i]) - static_cast<double>(*largest)) / temperature);
    total += weights[i];
  }
  double left = random.Unit() * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0.0) return static_cast<uint8_t>(i);
  }
  return static_cast<uint8_t>(largest - logits.begin());
}

}  // namespace

Sampler::Sampler(const ModelConfig& config, const ParameterTable& table, Compute<float>& compute)
    : context_(config.context), compute_(compute), loss_(compute, 1), model_(config, table, 1, compute) {}

Result<std::string> Sampler::Generate(const float* parameters, const SampleOptions& options, Collectives& tp) {
  Random random(DeriveSeed(options.seed, SeedPurpose::kSampling, 0));
  std::string text = options.prompt.empty() ? std::string("\n") : options.prompt;
  const size_t prompt_size = text.size();
  for (int64_t i = 0; i < options.length; ++i) {
    // Causal attention: what stands behind the last known byte does not reach its prediction.
    std::vector<uint8_t> window(static_cast<size_t>(context_) + 1, 0);
    const size_t seen = std::min(text.size(), static_cast<size_t>(context_));
    std::copy(text.end() - static_cast<std::ptrdiff_t>(seen), text.end(), window.begin());
    KINTSUGI_RETURN_IF_ERROR(model_.Forward(parameters, window, nullptr, tp, loss_.data()));
    const std::span<const float> scores = model_.Logits(0, static_cast<int64_t>(seen) - 1);
    std::vector<float> logits(scores.size());
    KINTSUGI_RETURN_IF_ERROR(compute_.Download(logits.data(), scores.data(), scores.size_bytes()));
    const uint8_t next = Draw(logits, options.temperature, random);
    text.push_back(static_cast<char>(next));
  }
  return text.substr(prompt_size);
}

}  // namespace kintsugi::byte_lm
