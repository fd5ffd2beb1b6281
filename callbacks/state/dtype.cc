#include "callbacks/state/dtype.h"

#include <array>

namespace kintsugi {
namespace {

struct Entry {
  DType dtype;
  uint64_t size_bytes;
  std::string_view name;
};

constexpr std::array<Entry, 21> kEntries = {{
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
    {DType::kUInt16, 2, "uint16"},
    {DType::kUInt32, 4, "uint32"},
    {DType::kUInt64, 8, "uint64"},
    {DType::kComplex32, 4, "complex32"},
    {DType::kFloat8E4M3Fnuz, 1, "float8_e4m3fnuz"},
    {DType::kFloat8E5M2Fnuz, 1, "float8_e5m2fnuz"},
    {DType::kFloat8E8M0, 1, "float8_e8m0fnu"},
}};

// What numpy, torch, safetensors and Megatron call them too.
struct Alias {
  std::string_view name;
  DType dtype;
};
constexpr std::array<Alias, 51> kAliases = {{
    {"fp64", DType::kFloat64},
    {"f64", DType::kFloat64},
    {"double", DType::kFloat64},
    {"fp32", DType::kFloat32},
    {"f32", DType::kFloat32},
    {"float", DType::kFloat32},
    {"fp16", DType::kFloat16},
    {"f16", DType::kFloat16},
    {"half", DType::kFloat16},
    {"bf16", DType::kBFloat16},
    {"e4m3", DType::kFloat8E4M3},
    {"fp8_e4m3", DType::kFloat8E4M3},
    {"f8_e4m3", DType::kFloat8E4M3},
    {"float8_e4m3", DType::kFloat8E4M3},
    {"e5m2", DType::kFloat8E5M2},
    {"fp8_e5m2", DType::kFloat8E5M2},
    {"f8_e5m2", DType::kFloat8E5M2},
    {"i64", DType::kInt64},
    {"long", DType::kInt64},
    {"i32", DType::kInt32},
    {"int", DType::kInt32},
    {"i16", DType::kInt16},
    {"short", DType::kInt16},
    {"i8", DType::kInt8},
    {"u8", DType::kUInt8},
    {"byte", DType::kUInt8},
    {"boolean", DType::kBool},
    {"c64", DType::kComplex64},
    {"cfloat", DType::kComplex64},
    {"c128", DType::kComplex128},
    {"cdouble", DType::kComplex128},
    {"F64", DType::kFloat64},
    {"F32", DType::kFloat32},
    {"F16", DType::kFloat16},
    {"BF16", DType::kBFloat16},
    {"F8_E4M3", DType::kFloat8E4M3},
    {"F8_E5M2", DType::kFloat8E5M2},
    {"I64", DType::kInt64},
    {"I32", DType::kInt32},
    {"I16", DType::kInt16},
    {"I8", DType::kInt8},
    {"U8", DType::kUInt8},
    {"u16", DType::kUInt16},
    {"u32", DType::kUInt32},
    {"u64", DType::kUInt64},
    {"U16", DType::kUInt16},
    {"U32", DType::kUInt32},
    {"U64", DType::kUInt64},
    {"chalf", DType::kComplex32},
    {"e8m0", DType::kFloat8E8M0},
    {"F8_E8M0", DType::kFloat8E8M0},
}};

// The table is indexed by the enum: a row out of place would give every later type the wrong size.
constexpr bool InOrder() {
  for (size_t i = 0; i < kEntries.size(); ++i)
    if (static_cast<size_t>(kEntries[i].dtype) != i) return false;
  return true;
}
static_assert(InOrder());
static_assert(kEntries.size() == static_cast<size_t>(kDTypeLast) + 1);

}  // namespace

bool IsKnown(DType dtype) { return static_cast<size_t>(dtype) < kEntries.size(); }

uint64_t DTypeSize(DType dtype) { return IsKnown(dtype) ? kEntries[static_cast<size_t>(dtype)].size_bytes : 0; }

std::string_view DTypeName(DType dtype) {
  return IsKnown(dtype) ? kEntries[static_cast<size_t>(dtype)].name : std::string_view("unknown");
}

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const Entry& entry : kEntries)
    if (entry.name == name) return entry.dtype;
  for (const Alias& alias : kAliases)
    if (alias.name == name) return alias.dtype;
  if (constexpr std::string_view kTorch = "torch."; name.starts_with(kTorch))
    return DTypeFromName(name.substr(kTorch.size()));
  return std::nullopt;
}

}  // namespace kintsugi
