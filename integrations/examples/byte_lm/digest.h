// The digest of a rank's training state: equal digests mean equal bits of parameters, masters and moments.
//
// Threads: pure functions. Gaps between parameters do not count.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "integrations/examples/byte_lm/adam_shard.h"
#include "integrations/examples/byte_lm/parameter_table.h"

namespace kintsugi::byte_lm {

struct Digest {
  uint64_t high = 0;
  uint64_t low = 0;
  bool operator==(const Digest&) const = default;
  // 32 lower-case hexadecimal digits.
  std::string Hex() const;
};

// XXH3 (128 bits) over the parameters in table order, then master, exp_avg and exp_avg_sq of this rank's pieces.
Digest DigestState(const ParameterTable& table, const float* parameters, const AdamShard& optimizer);

// The same, with arrays that lie elsewhere than the optimizer's own: copies of a device's.
Digest DigestState(const ParameterTable& table, const float* parameters, const std::vector<UpdatePiece>& pieces,
                   const OptimizerState& state);

// XXH3 over the parameters alone: equal on all data-parallel ranks.
Digest DigestParameters(const ParameterTable& table, const float* parameters);

}  // namespace kintsugi::byte_lm
