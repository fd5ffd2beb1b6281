// What must hold of a binding before a move may use it (private to this folder).
//
// Errors: kInvalidArgument with both values. Cost: a sort of a copy's parts.
#pragma once

#include "replica/reshard/bound_plan.h"

namespace kintsugi::reshard {

// The memory is there, on the host, and has exactly the piece's size.
Status CheckSourceBinding(const BoundMove& move, const layout::PieceView& piece);

// There is a copy; each copy's parts take every element of the move once, into bytes of their memories, by casts that
// exist and end in the memory's type.
Status CheckTargetBinding(const BoundMove& move);

// No source shares a byte with a memory that is written.
Status CheckMemoriesApart(const Bindings& bindings);

}  // namespace kintsugi::reshard
