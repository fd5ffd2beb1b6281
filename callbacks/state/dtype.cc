#include "callbacks/state/dtype.h"

#include <array>

namespace kintsugi {
namespace {

struct Entry {
  DType dtype;
  uint64_t size_bytes;
  std::string_view name;
};

constexpr std::array<Entry, 14> kEntries = {{
    {DType::kFloat64, 8, "float64"},
    {DType::kFloat32, 4, "float32"},
    {DType::kFloat16, 2, "float16"},
    {DType::kBFloat16, 2, "bfloat16"},
    {DType::kFloat8E4M3, 1, "float8_e4m3fn"},
    {DType::kFloat8E5M2, 1, "float8_e5m2"},
    {DType::kInt64, 8, "int64"},
    {DType::kInt32, 4, "int32"},
    {DType::kInt16, 2, "int16"},
    {DType::kInt8, 1, "int8"},
    {DType::kUInt8, 1, "uint8"},
    {DType::kBool, 1, "bool"},
    {DType::kComplex64, 8, "complex64"},
    {DType::kComplex128, 16, "complex128"},
}};

// The table is indexed by the enum: a row out of place would give every later type the wrong size.
constexpr bool InOrder() {
  for (size_t i = 0; i < kEntries.size(); ++i)
    if (static_cast<size_t>(kEntries[i].dtype) != i) return false;
  return true;
}
static_assert(InOrder());

}  // namespace

bool IsKnown(DType dtype) { return static_cast<size_t>(dtype) < kEntries.size(); }

uint64_t DTypeSize(DType dtype) { return IsKnown(dtype) ? kEntries[static_cast<size_t>(dtype)].size_bytes : 0; }

std::string_view DTypeName(DType dtype) {
  return IsKnown(dtype) ? kEntries[static_cast<size_t>(dtype)].name : std::string_view("unknown");
}

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const Entry& entry : kEntries)
    if (entry.name == name) return entry.dtype;
  return std::nullopt;
}

}  // namespace kintsugi
