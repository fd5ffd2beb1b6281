#include <immintrin.h>

#include "kernels/host_cast_rows_body.h"
#include "kernels/host_rows.h"

namespace kintsugi::internal {
namespace {

// The casts of training, by hand. Each gives one register of the destination from kCount elements of the source, by the rules of
// host_cast.h: a NaN is the quiet one with its sign.

// Sixteen lanes of 32 bits, none of more than 16, in their order.
__m256i Narrowed(__m256i low, __m256i high) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
}

// The upper halves of eight floats, rounded to nearest, ties to even.
__m256i RoundedUpperHalves(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i nan =
      _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(INT32_MIN)), _mm256_set1_epi32(0x7FC00000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, nan, is_nan), 16);
}

struct Float32ToBFloat16 {
  static constexpr auto kSlow = CastRow<NarrowFloat<BFloat16>, WideFloat>;
  static constexpr int64_t kTo = 2, kFrom = 4;
  static __m256i Convert(const uint8_t* from) {
    const auto* at = reinterpret_cast<const float*>(from);
    return Narrowed(RoundedUpperHalves(_mm256_loadu_ps(at)), RoundedUpperHalves(_mm256_loadu_ps(at + 8)));
  }
};

struct Float64ToBFloat16 {
  static constexpr auto kSlow = CastRow<NarrowFloat<BFloat16>, Double>;
  static constexpr int64_t kTo = 2, kFrom = 8;
  static __m256 EightFloats(const double* at) {
    return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(at + 4)), _mm256_cvtpd_ps(_mm256_loadu_pd(at)));
  }
  // Floats halfway between two results: only there does rounding twice differ from rounding once, since both are monotonic.
  static __m256i IsHalfway(__m256 value) {
    return _mm256_cmpeq_epi32(_mm256_slli_epi32(_mm256_castps_si256(value), 16), _mm256_set1_epi32(INT32_MIN));
  }
  static __m256i Convert(const uint8_t* from) {
    const auto* at = reinterpret_cast<const double*>(from);
    const __m256 low = EightFloats(at), high = EightFloats(at + 8);
    const __m256i rare = _mm256_or_si256(IsHalfway(low), IsHalfway(high));
    if (_mm256_testz_si256(rare, rare)) return Narrowed(RoundedUpperHalves(low), RoundedUpperHalves(high));
    alignas(32) uint8_t to[32];
    kSlow(to, kTo, from, kFrom, 16);
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(to));
  }
};

struct Float32ToFloat16 {
  static constexpr auto kSlow = CastRow<NarrowFloat<Binary16>, WideFloat>;
  static constexpr int64_t kTo = 2, kFrom = 4;
  static __m128i Eight(__m256 value) {
    const __m128i near = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i wide = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m128i is_nan = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    const __m128i nan = _mm_or_si128(_mm_and_si128(near, _mm_set1_epi16(INT16_MIN)), _mm_set1_epi16(0x7E00));
    return _mm_blendv_epi8(near, nan, is_nan);
  }
  static __m256i Convert(const uint8_t* from) {
    const auto* at = reinterpret_cast<const float*>(from);
    return _mm256_set_m128i(Eight(_mm256_loadu_ps(at + 8)), Eight(_mm256_loadu_ps(at)));
  }
};

struct Float32ToFloat8E4M3 {
  static constexpr auto kSlow = CastRow<NarrowFloat<E4M3>, WideFloat>;
  static constexpr int64_t kTo = 1, kFrom = 4;
  // Eight lanes of 32 bits with a code each.
  static __m256i Eight(const float* at) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(at));
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(INT32_MAX));
    // Exponent and fraction as one number, to nearest, ties to even. What is too large, infinity and NaN are beyond 0x7F, the NaN.
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, 20), _mm256_set1_epi32(1));
    const __m256i raised = _mm256_add_epi32(_mm256_add_epi32(magnitude, odd), _mm256_set1_epi32(0x7FFFF - (120 << 23)));
    const __m256i normal = _mm256_min_epu32(_mm256_srli_epi32(raised, 20), _mm256_set1_epi32(0x7F));
    // Below 2^-6 it is so many of 2^-9, to which an addition to 2^14 rounds.
    const __m256 unit = _mm256_set1_ps(16384.0f);
    const __m256i small = _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(magnitude), unit)),
                                           _mm256_castps_si256(unit));
    const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(121 << 23), magnitude);
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    return _mm256_or_si256(_mm256_blendv_epi8(normal, small, is_small), sign);
  }
  static __m256i Convert(const uint8_t* from) {
    const auto* at = reinterpret_cast<const float*>(from);
    const __m256i first = _mm256_packus_epi32(Eight(at), Eight(at + 8));
    const __m256i second = _mm256_packus_epi32(Eight(at + 16), Eight(at + 24));
    // Packed within halves: groups of four are in the order 0 2 4 6 1 3 5 7.
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, second), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
};

// A NaN of eight floats becomes the quiet one.
__m256i WithQuietNans(__m256 value) {
  const __m256 nan = _mm256_or_ps(_mm256_and_ps(value, _mm256_set1_ps(-0.0f)),
                                  _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000)));
  return _mm256_castps_si256(_mm256_blendv_ps(value, nan, _mm256_cmp_ps(value, value, _CMP_UNORD_Q)));
}

struct BFloat16ToFloat32 {
  static constexpr auto kSlow = CastRow<WideFloat, NarrowFloat<BFloat16>>;
  static constexpr int64_t kTo = 4, kFrom = 2;
  static __m256i Convert(const uint8_t* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return WithQuietNans(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)));
  }
};

struct Float16ToFloat32 {
  static constexpr auto kSlow = CastRow<WideFloat, NarrowFloat<Binary16>>;
  static constexpr int64_t kTo = 4, kFrom = 2;
  static __m256i Convert(const uint8_t* from) {
    return WithQuietNans(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }
};

struct Float64ToFloat32 {
  static constexpr auto kSlow = CastRow<WideFloat, Double>;
  static constexpr int64_t kTo = 4, kFrom = 8;
  static __m256i Convert(const uint8_t* from) {
    const auto* at = reinterpret_cast<const double*>(from);
    const __m128 low = _mm256_cvtpd_ps(_mm256_loadu_pd(at)), high = _mm256_cvtpd_ps(_mm256_loadu_pd(at + 4));
    return WithQuietNans(_mm256_set_m128(high, low));
  }
};

struct Float32ToFloat64 {
  static constexpr auto kSlow = CastRow<Double, WideFloat>;
  static constexpr int64_t kTo = 8, kFrom = 4;
  static __m256i Convert(const uint8_t* from) {
    const __m256d value = _mm256_cvtps_pd(_mm_loadu_ps(reinterpret_cast<const float*>(from)));
    const __m256d nan = _mm256_or_pd(_mm256_and_pd(value, _mm256_set1_pd(-0.0)),
                                     _mm256_castsi256_pd(_mm256_set1_epi64x(0x7FF8000000000000)));
    return _mm256_castpd_si256(_mm256_blendv_pd(value, nan, _mm256_cmp_pd(value, value, _CMP_UNORD_Q)));
  }
};

// Intel's prefetcher stops at the end of a page; AMD's does without help, and is slowed down by it.
constexpr int64_t kAheadBytes = 4096;
bool FetchesAhead() {
  static const bool is_intel = __builtin_cpu_is("intel") != 0;
  return is_intel;
}

// Rows without gaps register by register, from an aligned address of the destination on; large ones past the caches.
template <typename Cast>
void CastDenseRow(uint8_t* to, int64_t to_stride, const uint8_t* from, int64_t from_stride, int64_t count) {
  constexpr int64_t kCount = 32 / Cast::kTo;
  if (to_stride != Cast::kTo || from_stride != Cast::kFrom || reinterpret_cast<uintptr_t>(to) % Cast::kTo != 0)
    return Cast::kSlow(to, to_stride, from, from_stride, count);
  const int64_t head =
      std::min<int64_t>(static_cast<int64_t>((32 - reinterpret_cast<uintptr_t>(to) % 32) % 32) / Cast::kTo, count);
  Cast::kSlow(to, Cast::kTo, from, Cast::kFrom, head);
  const bool streams = static_cast<uint64_t>(count * Cast::kTo) >= kStreamRegionBytes;
  const bool fetches = streams && FetchesAhead();
  int64_t i = head;
  for (; streams && i + kCount <= count; i += kCount) {
    const uint8_t* const at = from + i * Cast::kFrom;
    for (int64_t line = 0; fetches && line < kCount * Cast::kFrom; line += 64)
      _mm_prefetch(reinterpret_cast<const char*>(at + kAheadBytes + line), _MM_HINT_T0);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i * Cast::kTo), Cast::Convert(at));
  }
  for (; i + kCount <= count; i += kCount)
    _mm256_store_si256(reinterpret_cast<__m256i*>(to + i * Cast::kTo), Cast::Convert(from + i * Cast::kFrom));
  Cast::kSlow(to + i * Cast::kTo, Cast::kTo, from + i * Cast::kFrom, Cast::kFrom, count - i);
  if (streams) _mm_sfence();
}

}  // namespace

RowCast RowCastAvx2(ElementType to, ElementType from) {
  using enum ElementType;
  if (from == kFloat32 && to == kBFloat16) return CastDenseRow<Float32ToBFloat16>;
  if (from == kFloat64 && to == kBFloat16) return CastDenseRow<Float64ToBFloat16>;
  if (from == kFloat32 && to == kFloat16) return CastDenseRow<Float32ToFloat16>;
  if (from == kFloat32 && to == kFloat8E4M3) return CastDenseRow<Float32ToFloat8E4M3>;
  if (from == kBFloat16 && to == kFloat32) return CastDenseRow<BFloat16ToFloat32>;
  if (from == kFloat16 && to == kFloat32) return CastDenseRow<Float16ToFloat32>;
  if (from == kFloat64 && to == kFloat32) return CastDenseRow<Float64ToFloat32>;
  if (from == kFloat32 && to == kFloat64) return CastDenseRow<Float32ToFloat64>;
  return FindCast(to, from);
}

}  // namespace kintsugi::internal
