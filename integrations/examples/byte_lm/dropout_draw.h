// What a dropout mask is made of: counted draws of a keyed mixer, one for every two elements. Compiled for the host
// and, by nvcc, for devices: both make the same masks.
#pragma once

#include <cstdint>

#include "kernels/portable.h"

namespace kintsugi::byte_lm {

struct DropoutDraws {
  uint64_t key = 0;
  uint64_t first = 0;          // number of the draw for elements 0 and 1
  uint32_t dropped_below = 0;  // of 2^32
};

// SplitMix64's mixer; see runtime/base/random.h. Written out here because a mask needs tens of thousands of draws.
KINTSUGI_HOST_DEVICE uint64_t MixDraw(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// The 64 bits behind elements 2 * pair and 2 * pair + 1: the first has the low half.
KINTSUGI_HOST_DEVICE uint64_t DrawOfPair(const DropoutDraws& draws, uint64_t pair) {
  return MixDraw(draws.key + 0x9E3779B97F4A7C15ull * (draws.first + pair));
}

}  // namespace kintsugi::byte_lm
