#include <immintrin.h>

#include "kernels/host_multilinear.h"
#include "kernels/multilinear.h"

namespace kintsugi::internal {
namespace {

constexpr uint64_t kRowBytes = 64;
constexpr uint64_t kRowWords = 16;

// Lane k is of word first_word + k.
__m512i ScaledNumbers(uint64_t first_word) {
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  const __m512i first = _mm512_set1_epi32(static_cast<int>(2 * static_cast<uint32_t>(first_word)));
  return _mm512_mullo_epi32(_mm512_add_epi32(first, odd), _mm512_set1_epi32(static_cast<int>(kMultilinearStep)));
}

__m512i Factors(__m512i scaled) {
  constexpr int kXorOfAnd = 0x78;  // a ^ (b & c)
  const __m512i keep = _mm512_set1_epi32(~1);
  scaled = _mm512_ternarylogic_epi32(scaled, _mm512_srli_epi32(scaled, 15), keep, kXorOfAnd);
  scaled = _mm512_mullo_epi32(scaled, _mm512_set1_epi32(static_cast<int>(kMultilinearMix)));
  return _mm512_ternarylogic_epi32(scaled, _mm512_srli_epi32(scaled, 16), keep, kXorOfAnd);
}

__m512i Products(__m512i words, __m512i factors) {
  const __m512i even = _mm512_mul_epu32(words, factors);
  return _mm512_add_epi64(even, _mm512_mul_epu32(_mm512_srli_epi64(words, 32), _mm512_srli_epi64(factors, 32)));
}

}  // namespace

uint64_t MultilinearRowsAvx512(const uint8_t* data, uint64_t rows, uint64_t first_word) {
  constexpr uint32_t kTwoRowsStep = 2u * 2u * static_cast<uint32_t>(kRowWords) * kMultilinearStep;
  const __m512i step = _mm512_set1_epi32(static_cast<int>(kTwoRowsStep));
  __m512i scaled_a = ScaledNumbers(first_word), scaled_b = ScaledNumbers(first_word + kRowWords);
  __m512i sum_a = _mm512_setzero_si512(), sum_b = _mm512_setzero_si512();
  uint64_t row = 0;
  for (; row + 2 <= rows; row += 2) {
    const uint8_t* const at = data + kRowBytes * row;
    const __m512i a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + kRowBytes);
    // The hardware prefetcher stops at every page.
    _mm_prefetch(reinterpret_cast<const char*>(at + 4096), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(at + 4096 + kRowBytes), _MM_HINT_T0);
    sum_a = _mm512_add_epi64(sum_a, Products(a, Factors(scaled_a)));
    sum_b = _mm512_add_epi64(sum_b, Products(b, Factors(scaled_b)));
    scaled_a = _mm512_add_epi32(scaled_a, step);
    scaled_b = _mm512_add_epi32(scaled_b, step);
  }
  if (row < rows)
    sum_a = _mm512_add_epi64(sum_a, Products(_mm512_loadu_si512(data + kRowBytes * row), Factors(scaled_a)));
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, _mm512_add_epi64(sum_a, sum_b));
  uint64_t sum = 0;
  for (const uint64_t lane : lanes) sum += lane;
  return sum;
}

}  // namespace kintsugi::internal
