// The multilinear checksum, word by word: the one definition that the host and device versions share.
//
// What: bytes are read as little-endian 32-bit words w(i), the last one filled up with zeros;
//   value = size_bytes * kLengthFactor + sum over i of w(i) * Factor(i)    (mod 2^64)
// Factor is a bijection from word numbers mod 2^31 to odd 32-bit numbers. The sum has no order, so any number of
// threads may add to it, and what a piece at any byte offset adds is known without the rest. Source of the rule:
// multilinear hashing (Carter and Wegman 1981; Lemire and Kaser, "Strongly universal string hashing is fast", 2014),
// here with fixed keys. What it finds for certain, in the first 8 GiB of a block:
//   any one or two flipped bits: a flip adds +-2^b * (odd); two at different b never cancel, two at one b <= 31 would
//   need Factor(i) +- Factor(j) = 0 mod 2^33, but both factors are different and below 2^32 two exchanged 32-bit words:
//   the product of two nonzero differences below 2^32 is not 0 mod 2^64 zeros cut off or added at the end: the length
//   factor is odd
// Anything else goes unseen with a chance of about 2^-64, or 2^-33 where only the top bits of words are hit.
// Threads: pure.
// Units: bytes.
#pragma once

#include <cstdint>

#include "kernels/portable.h"

namespace kintsugi::internal {

inline constexpr uint64_t kMultilinearLength = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
inline constexpr uint32_t kMultilinearStep = 0x9E3779B1u;
inline constexpr uint32_t kMultilinearMix = 0x85EBCA77u;

// `scaled` is (2 i + 1) * kMultilinearStep. Each step is a bijection of odd numbers: an odd product, and a shift that
// leaves the last bit alone.
KINTSUGI_HOST_DEVICE constexpr uint32_t MultilinearMixed(uint32_t scaled) {
  scaled ^= (scaled >> 15) & ~1u;
  scaled *= kMultilinearMix;
  return scaled ^ ((scaled >> 16) & ~1u);
}

KINTSUGI_HOST_DEVICE constexpr uint32_t MultilinearFactor(uint64_t word_number) {
  return MultilinearMixed((2 * static_cast<uint32_t>(word_number) + 1) * kMultilinearStep);
}

// What a value of 1, 2 or 4 bytes at byte `offset` of the block adds. REQUIRES: it lies within one 32-bit word.
KINTSUGI_HOST_DEVICE constexpr uint64_t MultilinearTerm(uint32_t value, uint64_t offset) {
  return static_cast<uint64_t>(static_cast<uint32_t>(value << (8 * (offset & 3)))) * MultilinearFactor(offset >> 2);
}

// What the length adds: the value of so many zero bytes.
KINTSUGI_HOST_DEVICE constexpr uint64_t MultilinearOfZeros(uint64_t size_bytes) {
  return size_bytes * kMultilinearLength;
}

}  // namespace kintsugi::internal
