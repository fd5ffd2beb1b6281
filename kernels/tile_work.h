// What one thread does for one tile: the bodies of the device kernels, as functions that a host compiles too.
//
// Why: a device kernel is a loop over tiles around one of these plus a reduction, so tests run the very same work on
// the CPU, thread by thread. They hold no barrier and no atomic. Tiles: of moves, kTileWords words of one move; of
// plain memory, kRangeTileWords words, the bytes that fill no word at the end of the last one. A tile of packed or
// plain bytes touches at most two checksum blocks, since blocks have 64 KiB and more; a tile of plain bytes exactly
// one.
// Threads: pure but for the bytes named.
// Units: bytes. Internal to kernels.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/move_table.h"
#include "kernels/multilinear.h"

namespace kintsugi::internal {

inline constexpr uint32_t kRangeTileWords = 4 * kTileWords;

template <uint32_t kBytes>
struct alignas(kBytes) WideWord {
  uint32_t part[kBytes / 4];
};

// The word of so many bytes.
template <uint32_t kBytes>
struct WordOf {
  using Type = WideWord<kBytes>;
};
template <>
struct WordOf<1> {
  using Type = uint8_t;
};
template <>
struct WordOf<2> {
  using Type = uint16_t;
};
template <>
struct WordOf<4> {
  using Type = uint32_t;
};

// Calls work.template operator()<bytes>(); `word_bytes` is 1, 2, 4, 8 or 16 and the same in all threads.
template <typename Work>
KINTSUGI_HOST_DEVICE void ForWordBytes(uint32_t word_bytes, const Work& work) {
  switch (word_bytes) {
    case 1:
      return work.template operator()<1>();
    case 2:
      return work.template operator()<2>();
    case 4:
      return work.template operator()<4>();
    case 8:
      return work.template operator()<8>();
    default:
      return work.template operator()<16>();
  }
}

// What a word at byte `offset` of its block adds to the block's checksum.
template <typename Word>
KINTSUGI_HOST_DEVICE uint64_t WordTerm(const Word& word, uint64_t offset) {
  if constexpr (std::is_integral_v<Word>) {
    return MultilinearTerm(word, offset);
  } else {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < sizeof(Word) / 4; ++i)
      sum += static_cast<uint64_t>(word.part[i]) * MultilinearFactor((offset >> 2) + i);
    return sum;
  }
}

// The move that holds tile `tile` of its table.
template <typename MoveType>
KINTSUGI_HOST_DEVICE uint32_t FindMove(const MoveTable<MoveType>& table, uint32_t tile) {
  uint32_t low = 0, high = table.moves;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (table.move[middle].first_tile <= tile)
      low = middle;
    else
      high = middle;
  }
  return low;
}

struct MoveOffsets {
  int64_t to;
  int64_t from;
};

// Where word `index` of a move lies; words have `to_word` bytes in one memory and `from_word` in the other.
template <typename MoveType>
KINTSUGI_HOST_DEVICE MoveOffsets OffsetsOf(const MoveType& move, uint32_t index, uint32_t to_word, uint32_t from_word) {
  uint32_t rest = move.row_words.Quotient(index);
  const int64_t in_row = index - rest * move.row_words.divisor;
  MoveOffsets result{in_row * to_word, in_row * from_word};
  for (int axis = 0; axis < move.outer; ++axis) {
    const uint32_t next = axis + 1 < move.outer ? move.length[axis].Quotient(rest) : 0;
    const auto coordinate = static_cast<int64_t>(rest - next * move.length[axis].divisor);
    result.to += coordinate * move.to_stride[axis];
    result.from += coordinate * move.from_stride[axis];
    rest = next;
  }
  return result;
}

// What one thread adds to the checksums of the block where its tile begins, and of the one behind.
struct TileSums {
  uint64_t first = 0;
  uint64_t second = 0;
};

template <typename MoveType>
KINTSUGI_HOST_DEVICE uint64_t FirstBlock(const MoveType& move, uint32_t tile, uint32_t block_shift) {
  const uint64_t word = static_cast<uint64_t>(tile - move.first_tile) * kTileWords;
  return (move.packed_offset + word * move.word_bytes) >> block_shift;
}

template <bool kWithSums, uint32_t kWordBytes, typename MoveType>
KINTSUGI_HOST_DEVICE TileSums CopyTileWords(const MoveType& move, uint32_t tile, uint32_t thread,
                                            uint32_t block_shift) {
  using Word = typename WordOf<kWordBytes>::Type;
  const uint32_t first = (tile - move.first_tile) * kTileWords + thread;
  Word word[kThreadWords];
  int64_t to[kThreadWords];
  for (uint32_t k = 0; k < kThreadWords; ++k) {
    const uint32_t index = first + k * kTileThreads;
    if (index >= move.words) break;
    const MoveOffsets at = OffsetsOf(move, index, kWordBytes, kWordBytes);
    word[k] = *reinterpret_cast<const Word*>(move.from + at.from);
    to[k] = at.to;
  }
  TileSums sums;
  [[maybe_unused]] const uint64_t first_block = kWithSums ? FirstBlock(move, tile, block_shift) : 0;
  for (uint32_t k = 0; k < kThreadWords; ++k) {
    const uint32_t index = first + k * kTileThreads;
    if (index >= move.words) break;
    *reinterpret_cast<Word*>(move.to + to[k]) = word[k];
    if constexpr (kWithSums) {
      const uint64_t packed = move.packed_offset + static_cast<uint64_t>(index) * kWordBytes;
      const uint64_t term = WordTerm(word[k], packed & ((uint64_t{1} << block_shift) - 1));
      if (packed >> block_shift == first_block)
        sums.first += term;
      else
        sums.second += term;
    }
  }
  return sums;
}

template <bool kWithSums, typename MoveType>
KINTSUGI_HOST_DEVICE TileSums CopyTile(const MoveType& move, uint32_t tile, uint32_t thread, uint32_t block_shift) {
  TileSums sums;
  ForWordBytes(move.word_bytes, [&]<uint32_t kWordBytes>() {
    sums = CopyTileWords<kWithSums, kWordBytes>(move, tile, thread, block_shift);
  });
  return sums;
}

// Plain memory; word_bytes divides the address (both addresses).
struct Range {
  const uint8_t* a = nullptr;
  const uint8_t* b = nullptr;  // of comparisons
  uint64_t size_bytes = 0;
  uint32_t word_bytes = 1;

  KINTSUGI_HOST_DEVICE uint64_t tile_bytes() const { return static_cast<uint64_t>(kRangeTileWords) * word_bytes; }
  KINTSUGI_HOST_DEVICE uint64_t tiles() const { return (size_bytes + tile_bytes() - 1) / tile_bytes(); }
};

// Calls visit(word index) for each of the thread's words of the tile, then visit_byte(offset) for its bytes behind
// them.
template <uint32_t kWordBytes, typename Visit, typename VisitByte>
KINTSUGI_HOST_DEVICE void ForRangeWords(const Range& range, uint64_t tile, uint32_t thread, const Visit& visit,
                                        const VisitByte& visit_byte) {
  const uint64_t words = range.size_bytes / kWordBytes, first = tile * kRangeTileWords;
  const uint32_t here = words - first < kRangeTileWords ? static_cast<uint32_t>(words - first) : kRangeTileWords;
#if defined(__CUDA_ARCH__)
#pragma unroll 4
#endif
  for (uint32_t k = thread; k < here; k += kTileThreads) visit(first + k);
  const uint64_t tail = words * kWordBytes + thread;
  if (first + here == words && here < kRangeTileWords && tail < range.size_bytes) visit_byte(tail);
}

template <uint32_t kWordBytes>
KINTSUGI_HOST_DEVICE uint64_t SumTileWords(const Range& range, uint64_t tile, uint32_t thread, uint64_t block_mask) {
  using Word = typename WordOf<kWordBytes>::Type;
  uint64_t sum = 0;
  const auto* words = reinterpret_cast<const Word*>(range.a);
  ForRangeWords<kWordBytes>(
      range, tile, thread, [&](uint64_t i) { sum += WordTerm(words[i], (i * kWordBytes) & block_mask); },
      [&](uint64_t at) { sum += MultilinearTerm(range.a[at], at & block_mask); });
  return sum;
}

// What the thread adds to the block that holds the tile.
KINTSUGI_HOST_DEVICE uint64_t SumTile(const Range& range, uint64_t tile, uint32_t thread, uint64_t block_mask) {
  uint64_t sum = 0;
  ForWordBytes(range.word_bytes,
               [&]<uint32_t kWordBytes>() { sum = SumTileWords<kWordBytes>(range, tile, thread, block_mask); });
  return sum;
}

template <typename Word>
KINTSUGI_HOST_DEVICE bool AreEqual(const Word& a, const Word& b) {
  if constexpr (std::is_integral_v<Word>) {
    return a == b;
  } else {
    uint32_t apart = 0;
    for (uint32_t i = 0; i < sizeof(Word) / 4; ++i) apart |= a.part[i] ^ b.part[i];
    return apart == 0;
  }
}

template <uint32_t kWordBytes>
KINTSUGI_HOST_DEVICE uint64_t CompareTileWords(const Range& range, uint64_t tile, uint32_t thread) {
  using Word = typename WordOf<kWordBytes>::Type;
  uint64_t found = kNoDifference;
  const auto* a = reinterpret_cast<const Word*>(range.a);
  const auto* b = reinterpret_cast<const Word*>(range.b);
  ForRangeWords<kWordBytes>(
      range, tile, thread,
      [&](uint64_t i) {
        if (AreEqual(a[i], b[i]) || found != kNoDifference) return;
        found = i * kWordBytes;
        while (range.a[found] == range.b[found]) ++found;
      },
      [&](uint64_t at) {
        if (range.a[at] != range.b[at] && at < found) found = at;
      });
  return found;
}

// The first difference among the thread's bytes, or kNoDifference.
KINTSUGI_HOST_DEVICE uint64_t CompareTile(const Range& range, uint64_t tile, uint32_t thread) {
  uint64_t found = kNoDifference;
  ForWordBytes(range.word_bytes,
               [&]<uint32_t kWordBytes>() { found = CompareTileWords<kWordBytes>(range, tile, thread); });
  return found;
}

// What block `block` of `size_bytes` bytes begins with: the term of its length.
KINTSUGI_HOST_DEVICE uint64_t StartOfSum(uint64_t block, uint64_t size_bytes, uint64_t block_bytes) {
  const uint64_t left = size_bytes - block * block_bytes;
  return MultilinearOfZeros(left < block_bytes ? left : block_bytes);
}

}  // namespace kintsugi::internal
