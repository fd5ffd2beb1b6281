// PlacedSum: what bytes at some place of a larger whole add to the whole's sum, which has no order (multilinear.h).
//
// What: the sums of parts that make up the whole, however it was cut, add up (mod 2^64) to one number; so those who
// hold parts can compare what they hold together without bringing it together.
//   value = sum over all 32-bit words w(i) of w(i) * MultilinearFactor(i) * PlacedFactor(i / 2^31)    (mod 2^64)
// MultilinearFactor comes again every 2^31 words; each such stretch of 8 GiB has an odd factor of its own, 1 for the
// first. No length is in it: a comparison of two sums compares the lengths of the wholes too. What is found for
// certain within a stretch, and how likely the rest is, stands in multilinear.h; two words at one place of two
// stretches are told apart by the stretches' factors.
// Threads: pure.
// Units: bytes.
#pragma once

#include <cstdint>

#include "runtime/base/export.h"

namespace kintsugi {

inline constexpr uint64_t kPlacedStretchBytes = uint64_t{1} << 33;

// `size_bytes` bytes at `data`, of any alignment, that begin at byte `offset` of the whole.
KINTSUGI_EXPORT uint64_t PlacedSum(const void* data, uint64_t size_bytes, uint64_t offset);

namespace internal {

// Each step is a bijection of odd numbers, as in multilinear.h: no two stretches have one factor.
constexpr uint64_t PlacedFactor(uint64_t stretch) {
  uint64_t factor = 2 * stretch * 0x9E3779B97F4A7C15u + 1;
  factor ^= (factor >> 31) & ~uint64_t{1};
  return factor;
}

}  // namespace internal
}  // namespace kintsugi
