// PieceMove: one box of one tensor that goes from one rank to another where state is cut anew, as data without addresses; and the
// function that plans all of them, for those who move pieces and may not include the planner (replica/live/piece_moves.h).
//
// Threads: plain data; a planner is pure.
// Errors: a planner's: what lacks a holder, overlaps or differs between ranks, naming key and ranks.
// Units: boxes in elements and global coordinates.
#pragma once

#include <map>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "runtime/base/result.h"

namespace kintsugi {

struct PieceMove {
  std::string key;
  Rank from, to;  // the same: a local copy
  Shape lo, hi;   // half-open
};

// What each rank holds, or is to hold. Memories are not looked at.
using TensorsByRank = std::map<Rank, std::vector<ShardedTensor>>;
using PiecePlanner = Result<std::vector<PieceMove>> (*)(const TensorsByRank& held, const TensorsByRank& wanted);

}  // namespace kintsugi
