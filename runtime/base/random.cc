#include "runtime/base/random.h"

#include "runtime/base/check.h"

namespace kintsugi {

uint64_t Random::Next() {
  state_ += 0x9E3779B97F4A7C15ull;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

uint64_t Random::Below(uint64_t bound) {
  KINTSUGI_CHECK(bound > 0, "Below needs a positive bound");
  // Values at the ragged end of the range would favour small results; draw again for those.
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  uint64_t x = Next();
  while (x >= limit) x = Next();
  return x % bound;
}

double Random::Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

}  // namespace kintsugi
