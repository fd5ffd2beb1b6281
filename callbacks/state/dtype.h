// Element types of registered tensors.
//
// A DType may have come over a boundary (C, Python, a file) as a number: a value that is none of these has size 0 and
// the name "unknown", and Validate refuses it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/base/export.h"

namespace kintsugi {

enum class DType : uint8_t {
  kFloat64, kFloat32, kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2,
  kInt64, kInt32, kInt16, kInt8, kUInt8, kBool, kComplex64, kComplex128,
  // Stored, moved and compared, never cast.
  kUInt16, kUInt32, kUInt64, kComplex32, kFloat8E4M3Fnuz, kFloat8E5M2Fnuz, kFloat8E8M0,
};
// The numbers travel: append, and move this.
inline constexpr DType kDTypeLast = DType::kFloat8E8M0;

KINTSUGI_EXPORT bool IsKnown(DType dtype);
// Bytes of one element.
KINTSUGI_EXPORT uint64_t DTypeSize(DType dtype);
// Names as numpy and torch print them: "float32", "bfloat16", "float8_e4m3fn", ...
KINTSUGI_EXPORT std::string_view DTypeName(DType dtype);
KINTSUGI_EXPORT std::optional<DType> DTypeFromName(std::string_view name);

}  // namespace kintsugi
