#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/host_transpose.h"

namespace kintsugi::internal {
namespace {

// Blocks go through the first cache: each source row gives four lines at once, and each destination row gets as many.
constexpr int64_t kBlockBytes = 256;
// Blocks of one page of each destination row are made before those of the next: the pages of the source rows that they
// read are few enough to be found without a walk through the page table each time.
constexpr int64_t kPageBytes = 4096;

// Eight by eight, from rows that are `from_stride` bytes apart to rows that are `to_stride` elements apart.
void TransposeTile(uint32_t* to, int64_t to_stride, const uint8_t* from, int64_t from_stride) {
  const auto row = [&](int64_t i) { return _mm256_loadu_ps(reinterpret_cast<const float*>(from + i * from_stride)); };
  const __m256 r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3), r4 = row(4), r5 = row(5), r6 = row(6), r7 = row(7);
  const __m256 a0 = _mm256_unpacklo_ps(r0, r1), a1 = _mm256_unpackhi_ps(r0, r1);
  const __m256 a2 = _mm256_unpacklo_ps(r2, r3), a3 = _mm256_unpackhi_ps(r2, r3);
  const __m256 a4 = _mm256_unpacklo_ps(r4, r5), a5 = _mm256_unpackhi_ps(r4, r5);
  const __m256 a6 = _mm256_unpacklo_ps(r6, r7), a7 = _mm256_unpackhi_ps(r6, r7);
  const __m256 b0 = _mm256_shuffle_ps(a0, a2, 0x44), b1 = _mm256_shuffle_ps(a0, a2, 0xEE);
  const __m256 b2 = _mm256_shuffle_ps(a1, a3, 0x44), b3 = _mm256_shuffle_ps(a1, a3, 0xEE);
  const __m256 b4 = _mm256_shuffle_ps(a4, a6, 0x44), b5 = _mm256_shuffle_ps(a4, a6, 0xEE);
  const __m256 b6 = _mm256_shuffle_ps(a5, a7, 0x44), b7 = _mm256_shuffle_ps(a5, a7, 0xEE);
  const auto put = [&](int64_t i, __m256 value) {
    _mm256_store_ps(reinterpret_cast<float*>(to + i * to_stride), value);
  };
  put(0, _mm256_permute2f128_ps(b0, b4, 0x20));
  put(1, _mm256_permute2f128_ps(b1, b5, 0x20));
  put(2, _mm256_permute2f128_ps(b2, b6, 0x20));
  put(3, _mm256_permute2f128_ps(b3, b7, 0x20));
  put(4, _mm256_permute2f128_ps(b0, b4, 0x31));
  put(5, _mm256_permute2f128_ps(b1, b5, 0x31));
  put(6, _mm256_permute2f128_ps(b2, b6, 0x31));
  put(7, _mm256_permute2f128_ps(b3, b7, 0x31));
}

// Sixteen of the source's side by side from eight of its rows: an eight by eight in each half of a register.
void TransposeTile(uint16_t* to, int64_t to_stride, const uint8_t* from, int64_t from_stride) {
  const auto row = [&](int64_t i) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i * from_stride));
  };
  const __m256i r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3), r4 = row(4), r5 = row(5), r6 = row(6), r7 = row(7);
  const __m256i a0 = _mm256_unpacklo_epi16(r0, r1), a1 = _mm256_unpackhi_epi16(r0, r1);
  const __m256i a2 = _mm256_unpacklo_epi16(r2, r3), a3 = _mm256_unpackhi_epi16(r2, r3);
  const __m256i a4 = _mm256_unpacklo_epi16(r4, r5), a5 = _mm256_unpackhi_epi16(r4, r5);
  const __m256i a6 = _mm256_unpacklo_epi16(r6, r7), a7 = _mm256_unpackhi_epi16(r6, r7);
  const __m256i b0 = _mm256_unpacklo_epi32(a0, a2), b1 = _mm256_unpackhi_epi32(a0, a2);
  const __m256i b2 = _mm256_unpacklo_epi32(a1, a3), b3 = _mm256_unpackhi_epi32(a1, a3);
  const __m256i b4 = _mm256_unpacklo_epi32(a4, a6), b5 = _mm256_unpackhi_epi32(a4, a6);
  const __m256i b6 = _mm256_unpacklo_epi32(a5, a7), b7 = _mm256_unpackhi_epi32(a5, a7);
  const auto put = [&](int64_t i, __m256i value) {
    _mm_store_si128(reinterpret_cast<__m128i*>(to + i * to_stride), _mm256_castsi256_si128(value));
    _mm_store_si128(reinterpret_cast<__m128i*>(to + (i + 8) * to_stride), _mm256_extracti128_si256(value, 1));
  };
  put(0, _mm256_unpacklo_epi64(b0, b4));
  put(1, _mm256_unpackhi_epi64(b0, b4));
  put(2, _mm256_unpacklo_epi64(b1, b5));
  put(3, _mm256_unpackhi_epi64(b1, b5));
  put(4, _mm256_unpacklo_epi64(b2, b6));
  put(5, _mm256_unpackhi_epi64(b2, b6));
  put(6, _mm256_unpacklo_epi64(b3, b7));
  put(7, _mm256_unpackhi_epi64(b3, b7));
}

template <typename Word>
class Transposer {
 public:
  Transposer(uint8_t* to, const uint8_t* from, const Plane& plane, bool past_caches)
      : to_(to),
        from_(from),
        plane_(plane),
        streams_(past_caches &&
                 (reinterpret_cast<uintptr_t>(to) | static_cast<uint64_t>(plane.to_stride)) % 64 == 0) {}

  void Run() {
    constexpr int64_t kPage = kPageBytes / kWord;
    for (int64_t page = 0; page < plane_.columns; page += kPage)
      for (int64_t row = 0; row < plane_.rows; row += kSide)
        for (int64_t column = page; column < std::min(page + kPage, plane_.columns); column += kSide)
          Block(row, column, std::min(kSide, plane_.rows - row), std::min(kSide, plane_.columns - column));
  }

 private:
  static constexpr auto kWord = static_cast<int64_t>(sizeof(Word));
  static constexpr int64_t kSide = kBlockBytes / kWord;
  static constexpr int64_t kTileRows = 32 / kWord, kTileColumns = 8;  // of the destination

  void Block(int64_t row, int64_t column, int64_t rows, int64_t columns) {
    const uint8_t* const from = from_ + row * kWord + column * plane_.from_stride;
    const bool has_next = column + 2 * kSide <= plane_.columns;
    const int64_t tiled_rows = rows / kTileRows * kTileRows, tiled_columns = columns / kTileColumns * kTileColumns;
    for (int64_t x = 0; x < tiled_columns; x += kTileColumns) {
      const uint8_t* const of_tile = from + x * plane_.from_stride;
      if (has_next) Fetch(of_tile + kSide * plane_.from_stride);
      for (int64_t y = 0; y < tiled_rows; y += kTileRows)
        TransposeTile(&block_[y * kSide + x], kSide, of_tile + y * kWord, plane_.from_stride);
    }
    for (int64_t x = 0; x < columns; ++x)
      for (int64_t y = x < tiled_columns ? tiled_rows : 0; y < rows; ++y)
        std::memcpy(&block_[y * kSide + x], from + x * plane_.from_stride + y * kWord, sizeof(Word));
    uint8_t* const to = to_ + row * plane_.to_stride + column * kWord;
    for (int64_t y = 0; y < rows; ++y) PutRow(to + y * plane_.to_stride, &block_[y * kSide], columns);
  }

  // The lines of the next block's source rows.
  void Fetch(const uint8_t* from) const {
    for (int64_t i = 0; i < kTileColumns; ++i)
      for (int64_t at = 0; at < kBlockBytes; at += 64)
        _mm_prefetch(reinterpret_cast<const char*>(from + i * plane_.from_stride + at), _MM_HINT_T0);
  }

  void PutRow(uint8_t* to, const Word* row, int64_t columns) const {
    if (!streams_ || columns < kSide) {
      std::memcpy(to, row, static_cast<size_t>(columns) * sizeof(Word));
      return;
    }
    for (int64_t x = 0; x < kSide; x += 32 / kWord)
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + x * kWord),
                          _mm256_load_si256(reinterpret_cast<const __m256i*>(row + x)));
  }

  uint8_t* const to_;
  const uint8_t* const from_;
  const Plane& plane_;
  const bool streams_;
  alignas(64) Word block_[kSide * kSide];
};

}  // namespace

bool CanTranspose(uint64_t element_bytes, const Plane& plane) {
  return (element_bytes == 2 || element_bytes == 4) && plane.rows >= kTransposeSide && plane.columns >= kTransposeSide;
}

void TransposePlaneAvx2(uint8_t* to, const uint8_t* from, const Plane& plane, uint64_t element_bytes,
                        bool past_caches) {
  if (element_bytes == 4)
    Transposer<uint32_t>(to, from, plane, past_caches).Run();
  else
    Transposer<uint16_t>(to, from, plane, past_caches).Run();
}

}  // namespace kintsugi::internal
