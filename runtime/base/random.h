// The randomness seam: a small seeded generator whose stream is the same on every machine and compiler.
//
// Source of the rule: SplitMix64 (Steele, Lea, Flood 2014), a 64-bit mixer over a Weyl sequence.
#pragma once

#include <cstdint>

#include "runtime/base/export.h"

namespace kintsugi {

class KINTSUGI_EXPORT Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // Uniform in [0, bound). REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound);
  // Uniform in [0, 1).
  double Unit();
  bool Chance(double probability) { return Unit() < probability; }

 private:
  uint64_t state_;
};

}  // namespace kintsugi
