// Elements of a move between memories and messages (private to this folder).
//
// What: elements are counted in the row-major order of a move's box; a message holds a range of them in that order, dense,
// in the stored type. REQUIRES: a bound move (bound_plan.h) and a range within it.
// Threads: pure.
#pragma once

#include "replica/reshard/bound_plan.h"

namespace kintsugi::reshard {

struct ElementRange {
  int64_t start = 0, stop = 0;
};

// Where the move's elements lie as one run of bytes, in its own order: what can be sent, or received, without a copy.
// Nothing: they do not, or are cast, or are wanted twice.
const uint8_t* ContiguousSource(const BoundMove& move);
uint8_t* ContiguousTarget(const BoundMove& move);

void PackElements(const BoundMove& move, ElementRange range, uint8_t* to);
// Into every copy.
void UnpackElements(const BoundMove& move, ElementRange range, const uint8_t* from);
// From this rank's source to every copy.
void CopyLocally(const BoundMove& move);

}  // namespace kintsugi::reshard
