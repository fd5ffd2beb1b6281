// The body of each host_cast_rows*.cc, compiled for one vector width, its symbols hidden in it.
#pragma once

#include <cstring>

#include "kernels/host_cast_rows.h"
#include "kernels/host_number.h"

namespace kintsugi::internal {
namespace {

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
struct WholeNumber {
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
void CastElement(uint8_t* to, const uint8_t* from) {
  const typename To::Bits bits = To::From(From::Read(from));
  std::memcpy(to, &bits, sizeof(bits));
}

template <typename To, typename From>
void CastRow(uint8_t* __restrict to, int64_t to_stride, const uint8_t* __restrict from, int64_t from_stride,
             int64_t count) {
  constexpr auto kTo = static_cast<int64_t>(sizeof(typename To::Bits));
  constexpr auto kFrom = static_cast<int64_t>(sizeof(typename From::Bits));
  // Strides that the compiler knows: it works on several elements at a time.
  if (to_stride == kTo && from_stride == kFrom)
    for (int64_t i = 0; i < count; ++i) CastElement<To, From>(to + i * kTo, from + i * kFrom);
  else
    for (int64_t i = 0; i < count; ++i) CastElement<To, From>(to + i * to_stride, from + i * from_stride);
}

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
      return CastRow<WholeNumber<int64_t>, From>;
    case ElementType::kInt32:
      return CastRow<WholeNumber<int32_t>, From>;
    case ElementType::kInt16:
      return CastRow<WholeNumber<int16_t>, From>;
    case ElementType::kInt8:
      return CastRow<WholeNumber<int8_t>, From>;
    case ElementType::kUInt8:
      return CastRow<WholeNumber<uint8_t>, From>;
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
      return CastFrom<WholeNumber<int64_t>>(to);
    case ElementType::kInt32:
      return CastFrom<WholeNumber<int32_t>>(to);
    case ElementType::kInt16:
      return CastFrom<WholeNumber<int16_t>>(to);
    case ElementType::kInt8:
      return CastFrom<WholeNumber<int8_t>>(to);
    case ElementType::kUInt8:
      return CastFrom<WholeNumber<uint8_t>>(to);
    default:
      return CastFrom<Truth>(to);
  }
}

}  // namespace
}  // namespace kintsugi::internal
