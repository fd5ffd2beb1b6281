#include "integrations/examples/byte_lm/initialize.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "integrations/examples/byte_lm/seeds.h"

namespace kintsugi::byte_lm {
namespace {

// One draw of the standard normal distribution from the stream of one element (Box and Muller 1958).
double Normal(uint64_t stream_seed) {
  Random random(stream_seed);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - random.Unit()));
  return radius * std::cos(2.0 * std::numbers::pi * random.Unit());
}

double Deviation(const Parameter& parameter, size_t blocks) {
  const double inputs = static_cast<double>(parameter.global_shape.back());
  switch (parameter.kind) {
    case ParameterKind::kEmbedding:
      return 0.1;
    case ParameterKind::kMatrix:
      return 1.0 / std::sqrt(inputs);
    case ParameterKind::kResidualMatrix:
      // Two branches per block add up in the residual stream; the scale keeps its variance independent of the depth.
      return 1.0 / std::sqrt(inputs * 2.0 * static_cast<double>(blocks));
    case ParameterKind::kHead:
      // Smaller, so that the first predictions are close to uniform.
      return 0.5 / std::sqrt(inputs);
    case ParameterKind::kNormWeight:
    case ParameterKind::kBias:
      return 0.0;
  }
  return 0.0;
}

// Row-major global index of the local element `index`; parameters have one or two axes.
uint64_t GlobalIndex(const Parameter& p, size_t index) {
  if (p.local_shape.size() == 1) return index + static_cast<uint64_t>(p.global_offset[0]);
  const uint64_t columns = static_cast<uint64_t>(p.local_shape[1]);
  const uint64_t row = index / columns + static_cast<uint64_t>(p.global_offset[0]);
  const uint64_t column = index % columns + static_cast<uint64_t>(p.global_offset[1]);
  return row * static_cast<uint64_t>(p.global_shape[1]) + column;
}

}  // namespace

template <typename Real>
void InitializeParameters(const ParameterTable& table, uint64_t seed, Real* flat) {
  std::fill_n(flat, table.flat_size(), Real{0});
  for (size_t i = 0; i < table.parameters().size(); ++i) {
    const Parameter& p = table[i];
    Real* values = flat + p.offset;
    if (p.kind == ParameterKind::kNormWeight) std::fill_n(values, p.count, Real{1});
    const double deviation = Deviation(p, table.blocks.size());
    if (deviation == 0.0) continue;
    const uint64_t stream = DeriveSeed(seed, SeedPurpose::kWeights, i);
    for (size_t j = 0; j < p.count; ++j) {
      values[j] = static_cast<Real>(deviation * Normal(stream ^ Random(GlobalIndex(p, j)).Next()));
    }
  }
}

template void InitializeParameters<float>(const ParameterTable&, uint64_t, float*);
template void InitializeParameters<double>(const ParameterTable&, uint64_t, double*);

}  // namespace kintsugi::byte_lm
