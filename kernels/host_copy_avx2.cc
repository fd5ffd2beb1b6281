#include "kernels/host_copy_avx2.h"

#include <immintrin.h>

namespace kintsugi::internal {

void CopyTileAvx2(uint8_t* to, const uint8_t* from, const uint8_t* next) {
  // Four streams side by side, one per quarter of the tile: more memory channels and prefetchers at work than one.
  constexpr uint64_t kStreams = 4;
  constexpr uint64_t kStreamBytes = kCopyTileBytes / kStreams;
  for (uint64_t line = 0; line < kStreamBytes; line += 64) {
    for (uint64_t stream = 0; stream < kStreams; ++stream) {
      const uint64_t at = stream * kStreamBytes + line;
      _mm_prefetch(reinterpret_cast<const char*>(next + at), _MM_HINT_T0);
      const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
      const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at + 32));
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), low);
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 32), high);
    }
  }
}

void CopyFenceAvx2() { _mm_sfence(); }

}  // namespace kintsugi::internal
