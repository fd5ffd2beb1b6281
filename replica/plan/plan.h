// Plan: which bytes go from which rank to which, as data without addresses.
//
// What: moves of boxes from a piece that a rank holds to a piece that a rank asks for. Pieces are named by their number
// in the two metadata the plan was made of; the executor binds (rank, piece) to memory. A rank that lists one
// piece under several replica ids gets it once and copies it to all of its memories of that piece. Order: keys as in
// the target, then target pieces, then receiving ranks, each ascending; within these the order in which the planner
// found the boxes. Where the stored tensor is smaller (allow_shape_mismatch), what lies outside of it is in no move and
// stays zero.
// Units: boxes in elements and global coordinates; bytes in the stored dtype, before any cast; 0 for objects, whose
// size is known only where they lie. Memory: 24 bytes for each move and 16 for each of its axes.
// Invariants: CheckPlan (plan_check.h) proves them before anything moves.
// Threads: plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "replica/layout/metadata.h"

namespace kintsugi::plan {

struct Move {
  uint32_t source_piece = 0;  // numbers among all pieces of the metadata
  uint32_t target_piece = 0;
  int32_t from = 0;  // equal to `to`: a local copy
  int32_t to = 0;
  int64_t bytes = 0;
  bool operator==(const Move&) const = default;
};

// The moves of one key of the target.
struct KeyMoves {
  uint32_t source_key = 0;  // numbers of keys in the two metadata
  uint32_t target_key = 0;
  uint64_t first_move = 0;
  uint64_t move_count = 0;
  uint64_t first_coordinate = 0;
  bool operator==(const KeyMoves&) const = default;
};

struct Plan {
  // DigestOf both metadata: a plan for another layout is refused.
  uint64_t source_digest = 0;
  uint64_t target_digest = 0;
  // Only the moves to and from this rank; nothing: all of them.
  std::optional<int32_t> rank;
  std::vector<KeyMoves> keys;  // one for each key of the target, in its order, also where nothing moves
  std::vector<Move> moves;
  std::vector<int64_t> coordinates;  // per move: lo of all axes, then hi of all axes

  const int64_t* Coordinates(const KeyMoves& key, uint64_t move, int axes) const {
    return coordinates.data() + key.first_coordinate + (move - key.first_move) * 2 * static_cast<uint64_t>(axes);
  }
  layout::Box BoxOf(const KeyMoves& key, uint64_t move, int axes) const {
    return layout::BoxFrom(Coordinates(key, move, axes), axes);
  }
  uint64_t MemoryBytes() const {
    return keys.size() * sizeof(KeyMoves) + moves.size() * sizeof(Move) + coordinates.size() * sizeof(int64_t);
  }
  bool operator==(const Plan&) const = default;
};

struct Traffic {
  int64_t bytes_total = 0;  // with the local ones
  int64_t bytes_local = 0;  // from a rank to itself
};

inline Traffic TrafficOf(const Plan& plan) {
  Traffic traffic;
  for (const Move& move : plan.moves) {
    traffic.bytes_total += move.bytes;
    if (move.from == move.to) traffic.bytes_local += move.bytes;
  }
  return traffic;
}

// Bytes of one element of a key; 0 for an object.
inline int64_t ElementBytes(const layout::KeyMeta& key) {
  return key.kind == layout::KeyKind::kObject ? 0 : static_cast<int64_t>(DTypeSize(key.dtype));
}

}  // namespace kintsugi::plan
