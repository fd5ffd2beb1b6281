// ElementType: how the bytes of one tensor element are read.
//
// What: the number formats that casts know. The order is that of callbacks/state/dtype.h, which this folder does not
// see; code that uses both converts by number.
// Source of the rule: IEEE 754-2019 for binary64, binary32 and binary16; bfloat16 is the upper half of binary32; the
// two 8-bit formats are those of the OCP 8-bit Floating Point Specification 1.0 (E4M3 has no infinity and one NaN per
// sign, as torch's float8_e4m3fn). Integers are two's complement. A bool is one byte, true unless 0. All little-endian.
// Threads: pure.
#pragma once

#include <cstdint>

#include "runtime/base/export.h"

namespace kintsugi {

enum class ElementType : uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3,
  kFloat8E5M2,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,
  kComplex64,
  kComplex128,
  // Copied, never cast.
  kUInt16,
  kUInt32,
  kUInt64,
  kComplex32,
  kFloat8E4M3Fnuz,
  kFloat8E5M2Fnuz,
  kFloat8E8M0,
};

// The first ones, which casts know, and all.
inline constexpr int kCastableTypes = 14;
inline constexpr int kElementTypes = 21;

// 0 for a number that is no type.
constexpr uint64_t ElementSize(ElementType type) {
  constexpr uint64_t kSizes[kElementTypes] = {8, 4, 2, 2, 1, 1, 8, 4, 2, 1, 1, 1, 8, 16, 2, 4, 8, 4, 1, 1, 1};
  return static_cast<int>(type) < kElementTypes ? kSizes[static_cast<int>(type)] : 0;
}

}  // namespace kintsugi
