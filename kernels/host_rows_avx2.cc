#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/host_rows.h"

namespace kintsugi::internal {
namespace {

// The prefetcher of the processor stops at the end of a row: what comes after it is fetched from here.
constexpr uint64_t kAheadBytes = 2048;

void StreamRow(uint8_t* to, const uint8_t* from, uint64_t size_bytes, const uint8_t* next) {
  // Whole lines only: one that is written past the caches in part and through them in part costs several.
  const uint64_t head = std::min<uint64_t>((64 - reinterpret_cast<uintptr_t>(to) % 64) % 64, size_bytes);
  std::memcpy(to, from, head);
  uint64_t at = head;
  for (; at + 128 <= size_bytes; at += 128) {
    const uint8_t* ahead =
        at + kAheadBytes < size_bytes ? from + at + kAheadBytes : next + (at + kAheadBytes - size_bytes);
    _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(ahead + 64), _MM_HINT_T0);
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at + 32));
    const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at + 64));
    const __m256i d = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at + 96));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 32), b);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 64), c);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 96), d);
  }
  std::memcpy(to + at, from + at, size_bytes - at);
}

}  // namespace

void StreamRowsAvx2(uint8_t* to, const uint8_t* from, const Rows& rows) {
  for (int64_t row = 0; row < rows.count; ++row) {
    const uint8_t* source = from + row * rows.from_stride;
    StreamRow(to + row * rows.to_stride, source, rows.row_bytes,
              row + 1 < rows.count ? source + rows.from_stride : source);
  }
}

void StreamFenceAvx2() { _mm_sfence(); }

}  // namespace kintsugi::internal
