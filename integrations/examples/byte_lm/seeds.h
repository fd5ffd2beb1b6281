// Where random streams come from: one seed of the run, one derived seed per purpose and index.
//
// Streams of different purposes or indices are unrelated, so that nothing random depends on the order in which ranks or
// parameters are visited.
#pragma once

#include <cstdint>

#include "runtime/base/random.h"

namespace kintsugi::byte_lm {

enum class SeedPurpose : uint64_t { kWeights = 1, kShuffle = 2, kDropout = 3, kSampling = 4 };

inline uint64_t DeriveSeed(uint64_t seed, SeedPurpose purpose, uint64_t index) {
  // Each stage passes through the mixer before the next value joins, so that sums cannot collide.
  const uint64_t first = Random(seed).Next();
  const uint64_t second = Random(first ^ static_cast<uint64_t>(purpose)).Next();
  return Random(second ^ index).Next();
}

}  // namespace kintsugi::byte_lm
