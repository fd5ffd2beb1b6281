#include "integrations/examples/byte_lm/permutation.h"

#include "runtime/base/check.h"
#include "runtime/base/random.h"

namespace kintsugi::byte_lm {

Permutation::Permutation(uint64_t seed, uint64_t size) : seed_(seed), size_(size) {
  KINTSUGI_CHECK(size >= 1 && size <= uint64_t{1} << 62, "byte_lm: a shuffle needs between 1 and 2^62 elements");
  while (uint64_t{1} << (2 * half_bits_) < size) ++half_bits_;
}

uint64_t Permutation::At(uint64_t place) const {
  uint64_t value = Shuffle(place);
  while (value >= size_) value = Shuffle(value);
  return value;
}

uint64_t Permutation::Shuffle(uint64_t value) const {
  constexpr uint64_t kRounds = 4;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = Random(seed_ ^ (right * kRounds + round)).Next() & mask;
    const uint64_t next = left ^ mixed;
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

}  // namespace kintsugi::byte_lm
