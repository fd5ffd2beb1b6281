#include <immintrin.h>

#include "kernels/host_multilinear.h"
#include "kernels/multilinear.h"

namespace kintsugi::internal {
namespace {

// Lane k starts at word first_word + k and goes on by `lanes` words.
__m256i ScaledNumbers(uint64_t first_word) {
  const __m256i odd = _mm256_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15);
  const __m256i first = _mm256_set1_epi32(static_cast<int>(2 * static_cast<uint32_t>(first_word)));
  return _mm256_mullo_epi32(_mm256_add_epi32(first, odd), _mm256_set1_epi32(static_cast<int>(kMultilinearStep)));
}

__m256i Factors(__m256i scaled) {
  const __m256i keep = _mm256_set1_epi32(~1);
  scaled = _mm256_xor_si256(scaled, _mm256_and_si256(_mm256_srli_epi32(scaled, 15), keep));
  scaled = _mm256_mullo_epi32(scaled, _mm256_set1_epi32(static_cast<int>(kMultilinearMix)));
  return _mm256_xor_si256(scaled, _mm256_and_si256(_mm256_srli_epi32(scaled, 16), keep));
}

__m256i Load(const uint8_t* data) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data)); }

// A row's words: `even` has those of even number, `odd` the others, each in the low half of a lane.
__m256i Products(__m256i even, __m256i odd, __m256i factors) {
  return _mm256_add_epi64(_mm256_mul_epu32(even, factors), _mm256_mul_epu32(odd, _mm256_srli_epi64(factors, 32)));
}

}  // namespace

uint64_t MultilinearRowsAvx2(const uint8_t* data, uint64_t rows, uint64_t first_word) {
  constexpr uint32_t kRowStep = 16u * kMultilinearStep;
  const __m256i step = _mm256_set1_epi32(static_cast<int>(2 * kRowStep));
  __m256i scaled_a = ScaledNumbers(first_word), scaled_b = ScaledNumbers(first_word + 8);
  __m256i sum_a = _mm256_setzero_si256(), sum_b = _mm256_setzero_si256();
  uint64_t row = 0;
  // Odd words are loaded once more, four bytes further on: ports that shift are what there are fewest of. The last row has
  // nothing behind it to load.
  for (; row + 2 < rows; row += 2) {
    const uint8_t* const at = data + 32 * row;
    // The hardware prefetcher stops at every page.
    _mm_prefetch(reinterpret_cast<const char*>(at + 4096), _MM_HINT_T0);
    sum_a = _mm256_add_epi64(sum_a, Products(Load(at), Load(at + 4), Factors(scaled_a)));
    sum_b = _mm256_add_epi64(sum_b, Products(Load(at + 32), Load(at + 36), Factors(scaled_b)));
    scaled_a = _mm256_add_epi32(scaled_a, step);
    scaled_b = _mm256_add_epi32(scaled_b, step);
  }
  for (; row < rows; ++row) {
    const __m256i words = Load(data + 32 * row);
    sum_a = _mm256_add_epi64(sum_a, Products(words, _mm256_srli_epi64(words, 32), Factors(scaled_a)));
    scaled_a = scaled_b;
  }
  alignas(32) uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi64(sum_a, sum_b));
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

}  // namespace kintsugi::internal
