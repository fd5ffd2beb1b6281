// Moves: copies of regions in the form that a device kernel takes them, many in one launch.
//
// What: a move is `words` words of 1 to 16 bytes; runs of `row_words` of them are contiguous in both memories, the runs
// lie by up to kOuter strided axes. Tables of moves travel as kernel parameters (constant memory, no upload, nothing to
// keep alive), so a launch takes as many as fit the 32,764 bytes that parameters may have (CUDA 12.1, compute
// capability 7.0). Work is cut into tiles of kTileWords words of one move; a thread block finds the move of its tile by
// `first_tile`. Two shapes: FlatMove (one run, or runs by one stride) and DeepMove (any region). Internal to kernels; host
// code that also tests run.
// Threads: pure.
// Units: words and bytes as named.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/byte_kernels.h"
#include "kernels/fast_divisor.h"

namespace kintsugi::internal {

inline constexpr uint32_t kTileThreads = 256;
inline constexpr uint32_t kThreadWords = 4;  // independent loads in flight in each thread
inline constexpr uint32_t kTileWords = kTileThreads * kThreadWords;
inline constexpr uint32_t kParameterBytesMax = 32764 - 64;  // 64: a kernel's other parameters

template <int kOuterAxes>
struct TableMove {
  static constexpr int kOuter = kOuterAxes;
  uint8_t* to = nullptr;
  const uint8_t* from = nullptr;
  uint64_t packed_offset = 0;  // of the first word, among the bytes that are checksummed
  uint32_t words = 0;          // < 2^31
  uint32_t first_tile = 0;
  uint8_t word_bytes = 1;
  uint8_t outer = 0;  // axes in use; axis 0 is the innermost
  FastDivisor row_words;
  FastDivisor length[kOuterAxes];
  int64_t to_stride[kOuterAxes] = {};
  int64_t from_stride[kOuterAxes] = {};
};

using FlatMove = TableMove<1>;
using DeepMove = TableMove<kRegionAxesMax>;

template <typename MoveType>
struct MoveTable {
  static constexpr uint32_t kCapacity = (kParameterBytesMax - 16) / sizeof(MoveType);
  uint32_t moves = 0;
  uint32_t tiles = 0;
  MoveType move[kCapacity];
};

struct Moves {
  std::vector<FlatMove> flat;
  std::vector<DeepMove> deep;
};

// Adds the moves of one copy. With `is_packed` the copy's elements in row-major order of its axes stand at
// packed_offset, and every move is a run of them: neither side's order is changed.
void AddMoves(const CopyPart& part, bool is_packed, uint64_t packed_offset, Moves& moves);

// Cuts `moves` into tables, in order, and numbers the tiles of each; `launch` takes one table and returns a Status.
template <typename MoveType, typename Launch>
Status ForEachTable(std::span<const MoveType> moves, const Launch& launch) {
  MoveTable<MoveType> table;
  for (size_t at = 0; at < moves.size(); ++at) {
    MoveType& move = table.move[table.moves++] = moves[at];
    move.first_tile = table.tiles;
    table.tiles += (move.words + kTileWords - 1) / kTileWords;
    const bool is_full = table.moves == MoveTable<MoveType>::kCapacity || table.tiles > (1u << 30);
    if (!is_full && at + 1 < moves.size()) continue;
    KINTSUGI_RETURN_IF_ERROR(launch(table));
    table.moves = table.tiles = 0;
  }
  return Status::Ok();
}

}  // namespace kintsugi::internal
