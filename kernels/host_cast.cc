#include "kernels/host_cast.h"

#include <algorithm>
#include <cstring>

#include "kernels/host_number.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

using namespace internal;

constexpr bool IsComplex(ElementType type) {
  return type == ElementType::kComplex64 || type == ElementType::kComplex128;
}

template <typename Word>
Word Load(const uint8_t* at) {
  Word word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

// Each format: how its value is read.
template <typename Narrow>
struct NarrowFloat {
  using Bits = typename Narrow::Bits;
  static float Read(const uint8_t* at) { return Widen<Narrow>(Load<Bits>(at)); }
  static Bits From(float value) { return RoundTo<Binary32, Narrow>(std::bit_cast<uint32_t>(value)); }
  static Bits From(double value) { return RoundTo<Binary64, Narrow>(std::bit_cast<uint64_t>(value)); }
  static Bits From(int64_t value) { return From(ToOddDouble(value)); }
};

struct WideFloat {
  using Bits = float;
  static float Read(const uint8_t* at) { return Load<float>(at); }
  static float From(float value) { return value; }
  static float From(double value) { return value != value ? QuietNan(std::signbit(value)) : static_cast<float>(value); }
  static float From(int64_t value) { return static_cast<float>(value); }
};

struct Double {
  using Bits = double;
  static double Read(const uint8_t* at) { return Load<double>(at); }
  static double From(double value) { return value; }
  static double From(float value) {
    return value != value ? static_cast<double>(QuietNan(std::signbit(value))) : static_cast<double>(value);
  }
  static double From(int64_t value) { return static_cast<double>(value); }
};

template <typename Integer>
struct Whole {
  using Bits = Integer;
  static int64_t Read(const uint8_t* at) { return Load<Integer>(at); }
  static Integer From(float value) { return Truncate<Integer>(value); }
  static Integer From(double value) { return Truncate<Integer>(value); }
  static Integer From(int64_t value) { return static_cast<Integer>(static_cast<uint64_t>(value)); }
};

struct Truth {
  using Bits = uint8_t;
  static int64_t Read(const uint8_t* at) { return *at != 0; }
  template <typename Value>
  static uint8_t From(Value value) {
    return value != Value{0};
  }
};

template <typename To, typename From>
void CastRow(uint8_t* to, int64_t to_stride, const uint8_t* from, int64_t from_stride, int64_t count) {
  const auto cast = [&](int64_t to_step, int64_t from_step) {
    for (int64_t i = 0; i < count; ++i) {
      const typename To::Bits bits = To::From(From::Read(from + i * from_step));
      std::memcpy(to + i * to_step, &bits, sizeof(bits));
    }
  };
  // Strides that the compiler knows: it can work on several elements at a time.
  constexpr auto kTo = static_cast<int64_t>(sizeof(typename To::Bits));
  constexpr auto kFrom = static_cast<int64_t>(sizeof(typename From::Bits));
  if (to_stride == kTo && from_stride == kFrom) return cast(kTo, kFrom);
  cast(to_stride, from_stride);
}

using RowCast = void (*)(uint8_t* to, int64_t to_stride, const uint8_t* from, int64_t from_stride, int64_t count);

template <typename From>
RowCast CastFrom(ElementType to) {
  switch (to) {
    case ElementType::kFloat64:
      return CastRow<Double, From>;
    case ElementType::kFloat32:
      return CastRow<WideFloat, From>;
    case ElementType::kFloat16:
      return CastRow<NarrowFloat<Binary16>, From>;
    case ElementType::kBFloat16:
      return CastRow<NarrowFloat<BFloat16>, From>;
    case ElementType::kFloat8E4M3:
      return CastRow<NarrowFloat<E4M3>, From>;
    case ElementType::kFloat8E5M2:
      return CastRow<NarrowFloat<E5M2>, From>;
    case ElementType::kInt64:
      return CastRow<Whole<int64_t>, From>;
    case ElementType::kInt32:
      return CastRow<Whole<int32_t>, From>;
    case ElementType::kInt16:
      return CastRow<Whole<int16_t>, From>;
    case ElementType::kInt8:
      return CastRow<Whole<int8_t>, From>;
    case ElementType::kUInt8:
      return CastRow<Whole<uint8_t>, From>;
    default:
      return CastRow<Truth, From>;
  }
}

// Neither type is complex, and they differ.
RowCast FindCast(ElementType to, ElementType from) {
  switch (from) {
    case ElementType::kFloat64:
      return CastFrom<Double>(to);
    case ElementType::kFloat32:
      return CastFrom<WideFloat>(to);
    case ElementType::kFloat16:
      return CastFrom<NarrowFloat<Binary16>>(to);
    case ElementType::kBFloat16:
      return CastFrom<NarrowFloat<BFloat16>>(to);
    case ElementType::kFloat8E4M3:
      return CastFrom<NarrowFloat<E4M3>>(to);
    case ElementType::kFloat8E5M2:
      return CastFrom<NarrowFloat<E5M2>>(to);
    case ElementType::kInt64:
      return CastFrom<Whole<int64_t>>(to);
    case ElementType::kInt32:
      return CastFrom<Whole<int32_t>>(to);
    case ElementType::kInt16:
      return CastFrom<Whole<int16_t>>(to);
    case ElementType::kInt8:
      return CastFrom<Whole<int8_t>>(to);
    case ElementType::kUInt8:
      return CastFrom<Whole<uint8_t>>(to);
    default:
      return CastFrom<Truth>(to);
  }
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
  const RowCast row = FindCast(to_type, from_type);
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
