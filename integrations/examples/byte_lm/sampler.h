// Sampler: writes text with the trained parameters, one byte after the other.
//
// Threads: one user at a time. Under tensor parallelism all ranks of the group generate together, with equal arguments,
// and get the same text.
// Ownership: owns activations for one window; the table must outlive it.
// Errors: the group's and the compute's failures are returned at once.
#pragma once

#include <cstdint>
#include <string>

#include "integrations/examples/byte_lm/collectives.h"
#include "integrations/examples/byte_lm/model.h"
#include "runtime/base/result.h"

namespace kintsugi::byte_lm {

struct SampleOptions {
  std::string prompt = "\n";  // where it is empty a newline takes its place
  int64_t length = 256;       // bytes to write after the prompt
  double temperature = 0.8;   // 0 always takes the likeliest byte
  uint64_t seed = 1;
};

class Sampler {
 public:
  Sampler(const ModelConfig& config, const ParameterTable& table, Compute<float>& compute = HostCompute<float>());

  // Returns what follows the prompt: arbitrary bytes, to be made printable by the caller.
  Result<std::string> Generate(const float* parameters, const SampleOptions& options, Collectives& tp);

 private:
  const int64_t context_;
  Compute<float>& compute_;
  ComputeArray<double> loss_;  // computed beside the scores, of no use here
  Model<float> model_;
};

}  // namespace kintsugi::byte_lm
