// Casts against tables of all values and nearest-neighbour search in them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/host_cast.h"
#include "kernels/host_cast_rows.h"
#include "runtime/base/random.h"

namespace kintsugi {
namespace {

using enum ElementType;

template <typename To, typename From>
To Cast(From value, ElementType to, ElementType from) {
  To result{};
  CastRegion(&result, to, &value, from, {});
  return result;
}

struct Format {
  ElementType type;
  int exponent_bits, fraction_bits;
  bool has_infinity;
  int bits() const { return 1 + exponent_bits + fraction_bits; }
};

constexpr Format kNarrow[] = {
    {kFloat16, 5, 10, true}, {kBFloat16, 8, 7, true}, {kFloat8E4M3, 4, 3, false}, {kFloat8E5M2, 5, 2, true}};

// A format's value by the text of its definition.
double ValueOf(const Format& format, uint32_t bits) {
  const uint32_t fraction = bits & ((1u << format.fraction_bits) - 1);
  const uint32_t exponent = (bits >> format.fraction_bits) & ((1u << format.exponent_bits) - 1);
  const double sign = bits >> (format.bits() - 1) ? -1 : 1;
  const uint32_t top = (1u << format.exponent_bits) - 1;
  if (format.has_infinity && exponent == top)
    return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (!format.has_infinity && exponent == top && fraction == (1u << format.fraction_bits) - 1)
    return std::numeric_limits<double>::quiet_NaN();
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const double unit = std::ldexp(1.0, -format.fraction_bits);
  if (exponent == 0) return sign * std::ldexp(fraction * unit, 1 - bias);
  return sign * std::ldexp(1 + fraction * unit, static_cast<int>(exponent) - bias);
}

// The bits nearest to a value, by search: long double holds every double and int64 and their differences exactly
// enough.
class Nearest {
 public:
  explicit Nearest(const Format& format) : format_(format) {
    for (uint32_t bits = 0; bits < 1u << (format.bits() - 1); ++bits) {
      const double value = ValueOf(format, bits);
      if (!std::isnan(value) && !std::isinf(value)) values_.push_back(value);
    }
    // Where the next value would be, if the exponent went on.
    const auto n = values_.size();
    beyond_ = 2 * static_cast<long double>(values_[n - 1]) - values_[n - 2];
  }
  const std::vector<double>& values() const { return values_; }
  double beyond() const { return static_cast<double>(beyond_); }

  uint32_t Find(long double value) const {
    const uint32_t sign = std::signbit(value) ? 1u << (format_.bits() - 1) : 0;
    const uint32_t infinity = static_cast<uint32_t>(values_.size());  // the bits after the largest
    const uint32_t nan = format_.has_infinity ? infinity | 1u << (format_.fraction_bits - 1) : infinity;
    if (std::isnan(value)) return sign | nan;
    const long double size = std::fabs(value);
    const auto above = std::lower_bound(values_.begin(), values_.end(), size);
    const auto high = static_cast<uint32_t>(above - values_.begin());
    if (high < values_.size() && values_[high] == size) return sign | high;
    const long double low_value = values_[high - 1];
    const long double high_value = high < values_.size() ? static_cast<long double>(values_[high]) : beyond_;
    if (size >= high_value) return sign | infinity;
    const long double to_low = size - low_value, to_high = high_value - size;
    if (to_low != to_high) return sign | (to_low < to_high ? high - 1 : high);
    return sign | (high % 2 == 0 ? high : high - 1);
  }

 private:
  const Format format_;
  std::vector<double> values_;  // not negative, ascending: index = bits
  long double beyond_ = 0;
};

TEST(Cast, ReadsEveryValueOfEveryNarrowFormat) {
  for (const Format& format : kNarrow)
    for (uint32_t bits = 0; bits < 1u << format.bits(); ++bits) {
      const double expected = ValueOf(format, bits);
      const bool negative = bits >> (format.bits() - 1);
      const auto wide = format.bits() == 8 ? Cast<float>(static_cast<uint8_t>(bits), kFloat32, format.type)
                                           : Cast<float>(static_cast<uint16_t>(bits), kFloat32, format.type);
      const auto wider = format.bits() == 8 ? Cast<double>(static_cast<uint8_t>(bits), kFloat64, format.type)
                                            : Cast<double>(static_cast<uint16_t>(bits), kFloat64, format.type);
      if (std::isnan(expected)) {
        ASSERT_EQ(std::bit_cast<uint32_t>(wide), negative ? 0xFFC00000u : 0x7FC00000u) << bits;
        ASSERT_EQ(std::bit_cast<uint64_t>(wider), negative ? 0xFFF8000000000000u : 0x7FF8000000000000u) << bits;
        continue;
      }
      ASSERT_EQ(std::bit_cast<uint64_t>(wider), std::bit_cast<uint64_t>(expected)) << bits;
      ASSERT_EQ(std::bit_cast<uint64_t>(static_cast<double>(wide)), std::bit_cast<uint64_t>(expected)) << bits;
    }
}

uint32_t CastDouble(double value, const Format& format) {
  return format.bits() == 8 ? Cast<uint8_t>(value, format.type, kFloat64)
                            : Cast<uint16_t>(value, format.type, kFloat64);
}
uint32_t CastFloat(float value, const Format& format) {
  return format.bits() == 8 ? Cast<uint8_t>(value, format.type, kFloat32)
                            : Cast<uint16_t>(value, format.type, kFloat32);
}
uint32_t CastInteger(int64_t value, const Format& format) {
  return format.bits() == 8 ? Cast<uint8_t>(value, format.type, kInt64) : Cast<uint16_t>(value, format.type, kInt64);
}

TEST(Cast, RoundsOnceToNearestTiesToEven) {
  Random random(4);
  for (const Format& format : kNarrow) {
    const Nearest nearest(format);
    const auto expect = [&](double value) {
      for (const double signed_value : {value, -value}) {
        ASSERT_EQ(CastDouble(signed_value, format), nearest.Find(signed_value)) << signed_value;
        const auto as_float = static_cast<float>(signed_value);
        ASSERT_EQ(CastFloat(as_float, format), nearest.Find(as_float)) << as_float;
      }
    };
    // Each value, the middle to the next, and what lies next to these: as double, and as the float nearest to it.
    for (size_t i = 0; i < nearest.values().size(); ++i) {
      const double low = nearest.values()[i];
      const double high = i + 1 < nearest.values().size() ? nearest.values()[i + 1] : nearest.beyond();
      const double middle = low + (high - low) / 2;
      for (const double value : {low, middle, high})
        for (const double near : {std::nextafter(value, 0), value, std::nextafter(value, 1e308)}) expect(near);
      const auto float_middle = static_cast<float>(middle);
      for (const float near : {std::nextafterf(float_middle, 0), std::nextafterf(float_middle, 1e38f)}) expect(near);
    }
    for (int i = 0; i < 200000; ++i) {
      expect(std::bit_cast<double>(random.Next()));
      expect(std::bit_cast<float>(static_cast<uint32_t>(random.Next())));
      expect(std::ldexp(random.Unit(), static_cast<int>(random.Below(60)) - 40));
    }
    expect(std::numeric_limits<double>::infinity());
    expect(std::numeric_limits<double>::max());
    expect(std::numeric_limits<double>::denorm_min());
    expect(0);
  }
}

TEST(Cast, RoundsLargeIntegersOnce) {
  Random random(5);
  for (const Format& format : kNarrow) {
    const Nearest nearest(format);
    for (int i = 0; i < 50000; ++i) {
      auto value = static_cast<int64_t>(random.Next() >> random.Below(64));
      if (random.Chance(0.3)) value = static_cast<int64_t>((uint64_t{0x81} << random.Below(56)) + random.Below(3) - 1);
      ASSERT_EQ(CastInteger(value, format), nearest.Find(static_cast<long double>(value))) << value;
      ASSERT_EQ(Cast<float>(value, kFloat32, kInt64), static_cast<float>(value));
      ASSERT_EQ(Cast<double>(value, kFloat64, kInt64), static_cast<double>(value));
    }
    ASSERT_EQ(CastInteger(std::numeric_limits<int64_t>::min(), format), nearest.Find(-0x1p63L));
  }
}

// What is cast several elements at a time has the bits of what is cast alone, which the tables above prove; whatever the processor has.
TEST(Cast, RowsHaveTheBitsOfTheirElements) {
  Random random(8);
  constexpr int64_t kCount = 65536 + 37;
  std::vector<uint8_t> source(kCount * 8);
  for (uint8_t& byte : source) byte = static_cast<uint8_t>(random.Next());
  for (int64_t i = 0; i < 65536; ++i) {  // each narrow value, at its place in rows of each width
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(source.data() + i * 2, &bits, 2);
  }
  for (int from = 0; from < kCastableTypes; ++from)
    for (int to = 0; to < kCastableTypes; ++to) {
      const auto from_type = static_cast<ElementType>(from), to_type = static_cast<ElementType>(to);
      if (from == to || !IsCastable(from_type, to_type) || from_type == kComplex64 || from_type == kComplex128) continue;
      const auto to_size = static_cast<int64_t>(ElementSize(to_type)), from_size = static_cast<int64_t>(ElementSize(from_type));
      std::vector<uint8_t> row(static_cast<size_t>(kCount * to_size)), alone(row.size());
      RegionPair region;
      region.axes = 1;
      region.length[0] = kCount, region.to_stride[0] = to_size, region.from_stride[0] = from_size;
      CastRegion(row.data(), to_type, source.data(), from_type, region);
      for (int64_t i = 0; i < kCount; ++i)
        CastRegion(alone.data() + i * to_size, to_type, source.data() + i * from_size, from_type, {});
      ASSERT_EQ(row, alone) << from << " to " << to;
      internal::RowCastBase(to_type, from_type)(row.data(), to_size, source.data(), from_size, kCount);
      ASSERT_EQ(row, alone) << from << " to " << to << ", without AVX2";
    }
}

TEST(Cast, OverflowsAsTheHeaderSays) {
  const float huge = std::numeric_limits<float>::max(), infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(CastFloat(huge, kNarrow[0]), 0x7C00u);
  EXPECT_EQ(CastFloat(huge, kNarrow[1]), 0x7F80u);
  EXPECT_EQ(CastFloat(464, kNarrow[2]), 0x7Eu);
  EXPECT_EQ(CastFloat(464.01f, kNarrow[2]), 0x7Fu);
  EXPECT_EQ(CastFloat(-infinity, kNarrow[2]), 0xFFu);
  EXPECT_EQ(CastFloat(infinity, kNarrow[3]), 0x7Cu);
  EXPECT_EQ(Cast<float>(1e300, kFloat32, kFloat64), infinity);
  const double odd_nan = std::bit_cast<double>(0xFFF0000000000001u);
  EXPECT_EQ(std::bit_cast<uint32_t>(Cast<float>(odd_nan, kFloat32, kFloat64)), 0xFFC00000u);
  EXPECT_EQ(Cast<uint16_t>(odd_nan, kBFloat16, kFloat64), 0xFFC0u);
  EXPECT_EQ(std::bit_cast<uint64_t>(Cast<double>(std::bit_cast<float>(0x7F812345u), kFloat64, kFloat32)),
            0x7FF8000000000000u);
  // The same type keeps every bit.
  EXPECT_EQ(Cast<uint32_t>(uint32_t{0x7F812345u}, kFloat32, kFloat32), 0x7F812345u);
}

template <typename Integer>
void ExpectIntegers(ElementType type) {
  using Limits = std::numeric_limits<Integer>;
  Random random(6);
  const auto expect = [&](double value) {
    Integer expected = 0;
    if (!std::isnan(value)) {
      const long double whole = std::trunc(static_cast<long double>(value));
      expected = whole >= static_cast<long double>(Limits::max())   ? Limits::max()
                 : whole <= static_cast<long double>(Limits::min()) ? Limits::min()
                                                                    : static_cast<Integer>(whole);
    }
    ASSERT_EQ(Cast<Integer>(value, type, kFloat64), expected) << value;
    if (static_cast<double>(static_cast<float>(value)) == value) {
      ASSERT_EQ(Cast<Integer>(static_cast<float>(value), type, kFloat32), expected) << value;
    }
  };
  for (int i = 0; i < 20000; ++i) {
    expect(std::bit_cast<double>(random.Next()));
    expect((random.Unit() - 0.5) * std::ldexp(1.0, static_cast<int>(random.Below(70))));
    const auto value = static_cast<int64_t>(random.Next());
    ASSERT_EQ(Cast<Integer>(value, type, kInt64), static_cast<Integer>(value));
    ASSERT_EQ(Cast<Integer>(static_cast<int16_t>(value), type, kInt16),
              static_cast<Integer>(static_cast<int16_t>(value)));
  }
  for (const double limit : {static_cast<double>(Limits::min()), static_cast<double>(Limits::max())})
    for (const double step : {-1.0, -0.5, 0.0, 0.5, 1.0}) expect(limit + step);
  for (const double value : {0.0, -0.0, -0.99, 0.99, std::nan(""), HUGE_VAL, -HUGE_VAL}) expect(value);
}

TEST(Cast, TruncatesToIntegersAndStopsAtTheirLimits) {
  ExpectIntegers<int64_t>(kInt64);
  ExpectIntegers<int32_t>(kInt32);
  ExpectIntegers<int16_t>(kInt16);
  ExpectIntegers<int8_t>(kInt8);
  ExpectIntegers<uint8_t>(kUInt8);
}

TEST(Cast, KnowsBools) {
  EXPECT_EQ(Cast<uint8_t>(0.25f, kBool, kFloat32), 1);
  EXPECT_EQ(Cast<uint8_t>(-0.0f, kBool, kFloat32), 0);
  EXPECT_EQ(Cast<uint8_t>(std::nanf(""), kBool, kFloat32), 1);
  EXPECT_EQ(Cast<uint8_t>(int64_t{1} << 40, kBool, kInt64), 1);
  EXPECT_EQ(Cast<float>(uint8_t{7}, kFloat32, kBool), 1.0f);
  EXPECT_EQ(Cast<uint16_t>(uint8_t{1}, kBFloat16, kBool), 0x3F80);
  EXPECT_EQ(Cast<uint8_t>(uint8_t{0x80}, kBool, kFloat8E4M3), 0) << "-0";
}

TEST(Cast, TakesComplexPartByPartAndToNothingElse) {
  const float parts[2] = {1.5f, -2.25f};
  double wide[2];
  CastRegion(wide, kComplex128, parts, kComplex64, {});
  EXPECT_EQ(wide[0], 1.5);
  EXPECT_EQ(wide[1], -2.25);
  float narrow[2];
  CastRegion(narrow, kComplex64, wide, kComplex128, {});
  EXPECT_EQ(narrow[1], -2.25f);
  for (int from = 0; from < kCastableTypes; ++from)
    for (int to = 0; to < kCastableTypes; ++to)
      EXPECT_EQ(IsCastable(static_cast<ElementType>(from), static_cast<ElementType>(to)), (from >= 12) == (to >= 12));
  EXPECT_FALSE(IsCastable(static_cast<ElementType>(14), kInt8));
}

// Every pair of types over a permuted region: each element as it is cast alone.
TEST(CastRegion, CastsEveryElementOfAnyRegion) {
  Random random(7);
  const int64_t a = 5, b = 37, c = 3;
  for (int from = 0; from < kCastableTypes; ++from)
    for (int to = 0; to < kCastableTypes; ++to) {
      const auto from_type = static_cast<ElementType>(from), to_type = static_cast<ElementType>(to);
      if (!IsCastable(from_type, to_type)) continue;
      const auto from_size = static_cast<int64_t>(ElementSize(from_type)),
                 to_size = static_cast<int64_t>(ElementSize(to_type));
      std::vector<uint8_t> source(static_cast<size_t>(a * b * c * from_size));
      for (auto& byte : source) byte = static_cast<uint8_t>(random.Next());
      for (const bool permuted : {false, true}) {
        RegionPair region{.axes = 3, .length = {a, b, c}};
        region.from_stride = DenseStrides(3, region.length, ElementSize(from_type));
        region.to_stride = permuted ? RegionAxes{to_size, c * a * to_size, a * to_size}
                                    : DenseStrides(3, region.length, ElementSize(to_type));
        std::vector<uint8_t> found(static_cast<size_t>(a * b * c * to_size) + 16, 0xA5), expected = found;
        CastRegion(found.data(), to_type, source.data(), from_type, region);
        for (int64_t i = 0; i < a; ++i)
          for (int64_t j = 0; j < b; ++j)
            for (int64_t k = 0; k < c; ++k)
              CastRegion(
                  expected.data() + i * region.to_stride[0] + j * region.to_stride[1] + k * region.to_stride[2],
                  to_type,
                  source.data() + i * region.from_stride[0] + j * region.from_stride[1] + k * region.from_stride[2],
                  from_type, {});
        ASSERT_TRUE(found == expected) << from << " to " << to;
      }
      CastRegion(nullptr, to_type, nullptr, from_type, {.axes = 1});
    }
}

// Of bits that lie about the limits of the narrower formats, halfway between two of their values, and anywhere.
uint64_t DoubleBits(Random& random) {
  const uint64_t sign = random.Next() << 63;
  const uint64_t exponent = random.Chance(0.8) ? 1023 - 160 + random.Below(300) : random.Below(2048);
  const uint64_t fraction = random.Next() >> 12 & (random.Chance(0.5) ? ~uint64_t{0} << (36 + random.Below(16)) : ~uint64_t{0});
  return sign | exponent << 52 | (fraction + (random.Chance(0.2) ? 1 : 0)) % (uint64_t{1} << 52);
}

// Dense rows go several elements at a time, large ones past the caches: each is what it is by itself.
TEST(CastRegion, DenseRowsOfAnyLengthAndAlignmentAreElementByElement) {
  Random random(8);
  for (const auto& [from, to] : {std::pair{kFloat64, kBFloat16}, {kFloat32, kBFloat16}, {kFloat32, kFloat16}, {kBFloat16, kFloat32},
                                 {kFloat16, kFloat32}, {kFloat64, kFloat32}, {kFloat32, kFloat64}, {kFloat64, kFloat16}, {kFloat32, kFloat8E4M3}})
    for (const int64_t count : {1, 7, 16, 31, 100, 66000, 2200000}) {
      const auto from_size = static_cast<int64_t>(ElementSize(from)), to_size = static_cast<int64_t>(ElementSize(to));
      std::vector<uint8_t> source(static_cast<size_t>(count * from_size));
      for (int64_t i = 0; i < count; ++i) {
        uint64_t bits = DoubleBits(random);
        if (from == kFloat32) bits = std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
        if (from_size == 2) bits = static_cast<uint64_t>(i);  // all there are
        if (random.Chance(0.01)) bits = random.Next();
        std::memcpy(source.data() + i * from_size, &bits, static_cast<size_t>(from_size));
      }
      const int64_t at = static_cast<int64_t>(random.Below(40));
      std::vector<uint8_t> dense(static_cast<size_t>(count * to_size) + 64, 0xA5), apart(dense.size() * 2, 0xA5);
      CastRegion(dense.data() + at, to, source.data(), from,
                 {.axes = 1, .length = {count}, .to_stride = {to_size}, .from_stride = {from_size}});
      CastRegion(apart.data(), to, source.data(), from,
                 {.axes = 1, .length = {count}, .to_stride = {2 * to_size}, .from_stride = {from_size}});
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(std::memcmp(dense.data() + at + i * to_size, apart.data() + 2 * i * to_size, static_cast<size_t>(to_size)), 0)
            << static_cast<int>(from) << " to " << static_cast<int>(to) << ", element " << i;
      ASSERT_TRUE(std::all_of(dense.begin(), dense.begin() + at, [](uint8_t byte) { return byte == 0xA5; }));
      ASSERT_TRUE(std::all_of(dense.begin() + at + count * to_size, dense.end(), [](uint8_t byte) { return byte == 0xA5; }));
    }
}

// Every upper half of a float, with lower halves about the ties: subnormals, all limits, infinities and NaNs among them.
TEST(CastRegion, DenseFloatsBecomeFloat8AsEachByItself) {
  for (const uint32_t low : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
    std::vector<uint32_t> source(65536);
    for (uint32_t i = 0; i < source.size(); ++i) source[i] = i << 16 | low;
    for (const ElementType to : {kFloat8E4M3, kFloat8E5M2}) {
      std::vector<uint8_t> dense(source.size()), alone(source.size());
      CastRegion(dense.data(), to, source.data(), kFloat32,
                 {.axes = 1, .length = {65536}, .to_stride = {1}, .from_stride = {4}});
      for (size_t i = 0; i < source.size(); ++i) CastRegion(&alone[i], to, &source[i], kFloat32, {});
      ASSERT_EQ(dense, alone) << low;
    }
  }
}

}  // namespace
}  // namespace kintsugi
