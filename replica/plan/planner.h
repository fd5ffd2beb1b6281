// The planner: a source layout and a target layout become moves.
//
// What: every element that a rank asks for comes from one rank that holds it; boxes and flat ranges of any kind on both
// sides, any number of ranks, copies on both sides. A rank number means the same process on both sides. Who sends, when
// several hold an element: the receiver itself, else a rank on its host, else any; within the last two, holders take
// turns (README). The target needs no cover and no main replicas; the source needs no main replicas, so what survivors
// hold is a source. Cost: shards and moves, with a logarithm for what is no grid; never their pairs. With `rank` only
// the moves to and from that rank are made, and of other ranks' moves only those it could have sent are looked at; the
// result is exactly the whole plan's part.
// Errors: as CheckRequest (replica/layout/request.h); kHole, an element no source holds; kOverlap, one that two hold;
// kOutOfBounds and kFlatRange; kRankUnknown for a negative rank; kTooLarge for more moves than allowed. The first in
// the order of the target. REQUIRES: source and target are valid (replica/layout/validate.h; the target as a request).
// Threads: pure.
#pragma once

#include <span>

#include "replica/plan/plan.h"

namespace kintsugi::plan {

// What a planner has done, for tests of its growth.
struct PlanCost {
  uint64_t steps = 0;  // boxes, nodes and shares looked at
};

struct PlanOptions {
  // The host of each rank, source and target alike; ranks past the end are on hosts of their own.
  std::span<const int32_t> hosts;
  // Bytes of the stored dtype are sent where the target has another one; the receiver casts.
  bool allow_cast = false;
  // Only the moves to and from this rank.
  std::optional<int32_t> rank;
  // A plan of more moves is refused before it has grown (kTooLarge).
  uint64_t moves_max = UINT64_MAX;
  PlanCost* cost = nullptr;
};

KINTSUGI_EXPORT Result<Plan, layout::LayoutError> MakePlan(const layout::Metadata& source,
                                                           const layout::Metadata& target,
                                                           const PlanOptions& options = {});

}  // namespace kintsugi::plan
