// CheckPlan: the proof that runs before every execution of a plan.
//
// What: from the two metadata alone, without the planner's index and whatever made the plan, that
//   - the plan belongs to these metadata (digests), and its arrays fit one another and are in canonical order
//   - each move is of the key: pieces of its source key and target key, whose names are equal
//   - the sender holds the source piece and the receiver asks for the target piece
//   - the box is not empty and lies within both pieces, flat ranges included
//   - the bytes are the box's elements times the size of one, so that bytes moved are the intersection's
//   - of each target piece, on each rank that asks for it, every element is written exactly once: its boxes are
//   disjoint
//     and have as many elements as are wanted
// In one rank's plan the last holds for what that rank receives; what it sends to others is disjoint, and neither from
// nor to others. Cost: linear in moves; only more than 16 boxes of one piece that are neither a grid nor in row-major
// order are searched for overlaps, n log n.
// Errors: kDigest, kFormat (arrays or order), kKey (other key), kRankUnknown (who does not hold or ask), kOutOfBounds,
// kLocalShape (bytes), kOverlap, kHole; each with key, ranks, region and both values. REQUIRES: valid metadata.
// Threads: pure.
#pragma once

#include <optional>

#include "replica/plan/plan.h"

namespace kintsugi::plan {

// What a check has done, for tests of its growth.
struct CheckCost {
  uint64_t steps = 0;  // moves, pairs of boxes and nodes looked at
};

// The first thing that is wrong; nothing: the plan may be executed.
KINTSUGI_EXPORT std::optional<layout::LayoutError> CheckPlan(const Plan& plan, const layout::Metadata& source,
                                                             const layout::Metadata& target, CheckCost* cost = nullptr);

}  // namespace kintsugi::plan
