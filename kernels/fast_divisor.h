// Division of 31-bit numbers by a divisor that a launch knows: one product and one shift.
//
// Source of the rule: Granlund and Montgomery, "Division by invariant integers using multiplication" (1994). With
// s = ceil(log2 d) and m = floor(2^(31+s) / d) + 1, n m >> (31 + s) is n / d for all n < 2^31.
// Threads: pure. REQUIRES: 0 < divisor < 2^31, numbers < 2^31.
#pragma once

#include <cstdint>

#include "kernels/portable.h"

namespace kintsugi::internal {

struct FastDivisor {
  uint32_t divisor = 1;
  uint32_t factor = 0x80000001u;
  uint32_t shift = 31;

  static constexpr FastDivisor Of(uint32_t divisor) {
    uint32_t log = 0;
    while ((uint64_t{1} << log) < divisor) ++log;
    return {divisor, static_cast<uint32_t>((uint64_t{1} << (31 + log)) / divisor + 1), 31 + log};
  }

  KINTSUGI_HOST_DEVICE constexpr uint32_t Quotient(uint32_t number) const {
    return static_cast<uint32_t>((static_cast<uint64_t>(number) * factor) >> shift);
  }
};

}  // namespace kintsugi::internal
