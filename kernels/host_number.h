// The value of one element, and the element of a value: the rules of host_cast.h for single numbers. Internal to
// kernels.
//
// What casts of floats of at most 32 bits use is compiled for devices too.
// A format is read into a carrier that holds each of its values exactly (float, double or int64_t) and written from
// one.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/portable.h"

namespace kintsugi::internal {

// The fields of a binary floating-point format.
template <typename BitsType, int kExponentBits, int kFractionBits, bool kWithInfinity = true>
struct FloatFormat {
  using Bits = BitsType;
  static constexpr int kFraction = kFractionBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kExponentMax = (1 << kExponentBits) - 1;
  static constexpr int kSignShift = kExponentBits + kFractionBits;
  static constexpr bool kHasInfinity = kWithInfinity;
  static constexpr uint64_t kInfinity = uint64_t{kExponentMax} << kFractionBits;
  // The quiet NaN; without infinities all ones is the only one.
  static constexpr uint64_t kNan =
      kWithInfinity ? kInfinity | (uint64_t{1} << (kFractionBits - 1)) : (uint64_t{1} << kSignShift) - 1;
  static constexpr uint64_t kOverflow = kWithInfinity ? kInfinity : kNan;
};

using Binary64 = FloatFormat<uint64_t, 11, 52>;
using Binary32 = FloatFormat<uint32_t, 8, 23>;
using Binary16 = FloatFormat<uint16_t, 5, 10>;
using BFloat16 = FloatFormat<uint16_t, 8, 7>;
using E4M3 = FloatFormat<uint8_t, 4, 3, false>;
using E5M2 = FloatFormat<uint8_t, 5, 2>;

// bits / 2^shift, to nearest, ties to even. REQUIRES: 0 < shift < the bits of a word, no overflow.
template <typename Word>
KINTSUGI_HOST_DEVICE constexpr Word RoundedShift(Word bits, Word shift) {
  return (bits + ((Word{1} << (shift - 1)) - 1) + ((bits >> shift) & 1)) >> shift;
}

// From a wide format to a narrower one with a range that is not larger. In words of the wide format and without branches: compilers work
// on several at a time.
template <typename Wide, typename Narrow>
KINTSUGI_HOST_DEVICE constexpr typename Narrow::Bits RoundTo(typename Wide::Bits bits) {
  using Word = typename Wide::Bits;
  constexpr Word kShift = Wide::kFraction - Narrow::kFraction;
  constexpr auto kInfinity = static_cast<Word>(Wide::kInfinity), kOverflow = static_cast<Word>(Narrow::kOverflow);
  constexpr auto kNan = static_cast<Word>(Narrow::kNan);
  const Word sign = (bits >> Wide::kSignShift) << Narrow::kSignShift;
  const Word magnitude = bits & ((Word{1} << Wide::kSignShift) - 1);
  // Exponent and fraction are rounded as one number: a carry of the fraction raises the exponent, also into infinity.
  if constexpr (Wide::kBias == Narrow::kBias) {
    const Word rounded = RoundedShift(magnitude, kShift);
    return static_cast<typename Narrow::Bits>((magnitude > kInfinity ? kNan : rounded) | sign);
  }
  constexpr Word kBiasDown = Wide::kBias - Narrow::kBias;
  const Word exponent = magnitude >> Wide::kFraction;
  const Word raised = RoundedShift(static_cast<Word>(magnitude - (kBiasDown << Wide::kFraction)), kShift);
  const Word normal = raised >= kOverflow ? kOverflow : raised;
  // Below the smallest normal number the fraction moves down by one bit for each exponent that is missing; by kGone it is 0.
  constexpr Word kGone = Wide::kFraction + 2;
  const Word missing = kShift + 1 + kBiasDown - exponent;
  const Word shift = exponent > kBiasDown ? kGone : missing > kGone ? kGone : missing;
  const Word fraction = (magnitude & ((Word{1} << Wide::kFraction) - 1)) | (Word{1} << Wide::kFraction);
  const Word finite = exponent > kBiasDown ? normal : RoundedShift(fraction, shift);
  return static_cast<typename Narrow::Bits>((magnitude > kInfinity ? kNan : finite) | sign);
}

KINTSUGI_HOST_DEVICE float QuietNan(bool negative) {
  return std::bit_cast<float>(static_cast<uint32_t>(Binary32::kNan | (uint64_t{negative} << Binary32::kSignShift)));
}

// A narrow format's value as a float. Without branches, as above.
template <typename Narrow>
KINTSUGI_HOST_DEVICE float Widen(typename Narrow::Bits bits) {
  constexpr auto kSign = uint32_t{1} << Narrow::kSignShift;
  constexpr auto kNan = static_cast<uint32_t>(Binary32::kNan), kInfinity = static_cast<uint32_t>(Binary32::kInfinity);
  constexpr uint32_t kBiasUp = Binary32::kBias - Narrow::kBias;
  const uint32_t magnitude = bits & (kSign - 1);
  const uint32_t sign = (uint32_t{bits} & kSign) << (Binary32::kSignShift - Narrow::kSignShift);
  uint32_t wide = (magnitude << (Binary32::kFraction - Narrow::kFraction)) + (kBiasUp << Binary32::kFraction);
  // A subnormal is so many of the smallest value, a power of two; one of a format with binary32's range is one there.
  if constexpr (kBiasUp > 0) {
    constexpr uint32_t kUnit = (kBiasUp + 1 - Narrow::kFraction) << Binary32::kFraction;
    const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * std::bit_cast<float>(kUnit);
    wide = magnitude >> Narrow::kFraction == 0 ? std::bit_cast<uint32_t>(subnormal) : wide;
  }
  if constexpr (Narrow::kHasInfinity) {
    wide = magnitude == Narrow::kInfinity ? kInfinity : wide;
    wide = magnitude > Narrow::kInfinity ? kNan : wide;
  } else {
    wide = magnitude == Narrow::kNan ? kNan : wide;
  }
  return std::bit_cast<float>(wide | sign);
}

// The double whose later rounding to at most 51 bits is that of the integer itself: bits that do not fit are kept as
// a sticky last bit (round to odd; Boldo and Melquiond 2008).
inline double ToOddDouble(int64_t value) {
  const uint64_t magnitude = value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const int shift = std::max(0, 64 - std::countl_zero(magnitude | 1) - 53);
  const uint64_t lost = magnitude & ((uint64_t{1} << shift) - 1);
  const uint64_t kept = (magnitude >> shift) | (lost != 0);
  const double result = std::ldexp(static_cast<double>(kept), shift);
  return value < 0 ? -result : result;
}

template <typename Integer, typename Float>
Integer Truncate(Float value) {
  using Limits = std::numeric_limits<Integer>;
  if (value != value) return 0;
  // Both limits as floats are powers of two or 0: exact.
  constexpr auto kEnd = static_cast<Float>(uint64_t{1} << Limits::digits);
  if (value >= kEnd) return Limits::max();
  if (value <= static_cast<Float>(Limits::min())) return Limits::min();
  return static_cast<Integer>(value);
}

}  // namespace kintsugi::internal
