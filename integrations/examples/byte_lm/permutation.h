// Permutation: a seeded shuffle of 0 .. size - 1 that is computed, not stored.
//
// A four-round Feistel network (Luby and Rackoff 1988) over the next larger power of four, walked until it lands inside:
// each place costs a handful of multiplications, whatever the size, and no rank has to keep a list.
//
// Threads: immutable.
#pragma once

#include <cstdint>

namespace kintsugi::byte_lm {

class Permutation {
 public:
  // REQUIRES: size >= 1.
  Permutation(uint64_t seed, uint64_t size);
  // REQUIRES: place < size.
  uint64_t At(uint64_t place) const;

 private:
  uint64_t Shuffle(uint64_t value) const;

  uint64_t seed_;
  uint64_t size_;
  int half_bits_ = 1;
};

}  // namespace kintsugi::byte_lm
