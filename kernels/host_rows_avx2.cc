#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/host_rows.h"

namespace kintsugi::internal {
namespace {

// The prefetcher of the processor stops at the end of a page and of a row: a page ahead is fetched from here, and no
// more than a row. Into the second cache: what comes a page later would push itself out of the first where rows lie a
// power of two apart (kernels/README.md).
constexpr uint64_t kAheadBytes = 4096;

struct Row {
  uint8_t* to;
  const uint8_t* from;
};

void StreamLine(uint8_t* to, const uint8_t* from) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32));
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), low);
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 32), high);
}

void StreamRow(Row row, Row next, uint64_t size_bytes) {
  // Whole lines only: one that is written past the caches in part and through them in part costs several.
  const uint64_t head = std::min<uint64_t>((64 - reinterpret_cast<uintptr_t>(row.to) % 64) % 64, size_bytes);
  const uint64_t body_end = head + (size_bytes - head) / 64 * 64;
  if (body_end < size_bytes) __builtin_prefetch(row.to + body_end, 1);
  if (head > 0) __builtin_prefetch(next.to, 1);
  std::memcpy(row.to, row.from, head);
  const uint64_t distance = std::min(kAheadBytes, size_bytes);
  for (uint64_t at = head; at < body_end; at += 64) {
    const uint64_t ahead = at + distance;
    _mm_prefetch(
        reinterpret_cast<const char*>(ahead < size_bytes ? row.from + ahead : next.from + (ahead - size_bytes)),
        _MM_HINT_T1);
    StreamLine(row.to + at, row.from + at);
  }
  std::memcpy(row.to + body_end, row.from + body_end, size_bytes - body_end);
}

// So far ahead is read: rows that lie apart are no stream to the processor.
constexpr int64_t kAheadShortBytes = 2048;

template <int64_t kBytes>
void StreamShortRows(uint8_t* to, const uint8_t* from, const RegionRows& rows) {
  constexpr int64_t kAhead = kAheadShortBytes / kBytes;
  for (int64_t row = 0; row < rows.count; ++row, to += rows.to_stride, from += rows.from_stride) {
    for (int64_t at = 0; at < kBytes; at += 64)
      _mm_prefetch(reinterpret_cast<const char*>(from + kAhead * rows.from_stride + at), _MM_HINT_T0);
    for (int64_t at = 0; at < kBytes; at += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
}

}  // namespace

bool FillsLines(const uint8_t* to, const RegionRows& rows) {
  const auto row_bytes = static_cast<int64_t>(rows.row_bytes);
  const bool is_known = row_bytes >= 16 && row_bytes <= 256 && (row_bytes & (row_bytes - 1)) == 0;
  const uintptr_t at = reinterpret_cast<uintptr_t>(to);
  const bool dense = rows.to_stride == row_bytes && at % 16 == 0;
  return is_known && (dense || (row_bytes % 64 == 0 && at % 64 == 0 && rows.to_stride % 64 == 0));
}

void StreamShortRowsAvx2(uint8_t* to, const uint8_t* from, const RegionRows& rows) {
  switch (rows.row_bytes) {
    case 16:
      return StreamShortRows<16>(to, from, rows);
    case 32:
      return StreamShortRows<32>(to, from, rows);
    case 64:
      return StreamShortRows<64>(to, from, rows);
    case 128:
      return StreamShortRows<128>(to, from, rows);
    default:
      return StreamShortRows<256>(to, from, rows);
  }
}

void StreamRowsAvx2(uint8_t* to, const uint8_t* from, const RegionRows& rows) {
  for (int64_t row = 0; row < rows.count; ++row) {
    const int64_t next = std::min(row + 1, rows.count - 1);
    StreamRow({to + row * rows.to_stride, from + row * rows.from_stride},
              {to + next * rows.to_stride, from + next * rows.from_stride}, rows.row_bytes);
  }
}

void StreamFenceAvx2() { _mm_sfence(); }

}  // namespace kintsugi::internal
