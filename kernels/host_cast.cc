#include "kernels/host_cast.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/host_cast_rows.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

constexpr bool IsComplex(ElementType type) {
  return type == ElementType::kComplex64 || type == ElementType::kComplex128;
}

#if defined(__x86_64__)
// Asked of the processor itself: Clang 14's __builtin_cpu_supports does not know f16c.
bool HasF16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

internal::RowCast RowCastOf(ElementType to, ElementType from) {
#if defined(__x86_64__)
  static const bool has_both = __builtin_cpu_supports("avx2") && HasF16c();
  if (has_both) return internal::RowCastAvx2(to, from);
#endif
  return internal::RowCastBase(to, from);
}

}  // namespace

bool IsCastable(ElementType from, ElementType to) {
  if (from == to) return ElementSize(from) > 0;
  return static_cast<int>(from) < kCastableTypes && static_cast<int>(to) < kCastableTypes &&
         IsComplex(from) == IsComplex(to);
}

void CastRegion(void* to, ElementType to_type, const void* from, ElementType from_type, const RegionPair& region) {
  KINTSUGI_CHECK(IsCastable(from_type, to_type), "there is no cast between these types");
  if (to_type == from_type) return CopyRegion(to, from, region, ElementSize(to_type));
  auto* target = static_cast<uint8_t*>(to);
  auto* source = static_cast<const uint8_t*>(from);
  if (IsComplex(to_type)) {
    const bool widens = to_type == ElementType::kComplex128;
    const ElementType to_part = widens ? ElementType::kFloat64 : ElementType::kFloat32;
    const ElementType from_part = widens ? ElementType::kFloat32 : ElementType::kFloat64;
    CastRegion(target, to_part, source, from_part, region);
    return CastRegion(target + ElementSize(to_part), to_part, source + ElementSize(from_part), from_part, region);
  }
  const internal::RowCast row = RowCastOf(to_type, from_type);
  RegionPair simple = Coalesce(region);
  if (simple.axes == 0) return row(target, 0, source, 0, 1);
  if (simple.length[0] == 0) return;
  const int last = simple.axes - 1;
  RegionAxes at{};
  for (;;) {
    row(target, simple.to_stride[last], source, simple.from_stride[last], simple.length[last]);
    int axis = last - 1;
    for (; axis >= 0; --axis) {
      target += simple.to_stride[axis];
      source += simple.from_stride[axis];
      if (++at[axis] < simple.length[axis]) break;
      target -= at[axis] * simple.to_stride[axis];
      source -= at[axis] * simple.from_stride[axis];
      at[axis] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace kintsugi
