// MovePieces: one rank's part where the state of a live run is cut anew: pieces go from whoever holds them to whoever is to hold
// them, and the state is the state afterwards.
//
// What: all that hold pieces, or are to hold some, take part (replica/live). What is asked for must be each tensor whole, and
// nothing may be left over. The logical sum of each tensor (replica/save/logical_sum.h), over its copies' bytes, is the same
// before and after; copies that differ are found on both sides.
// Threads: the trainer's.
// Errors: as ReshardLive, with sources untouched; kDataLoss names the tensor whose sum is another one.
#pragma once

#include "replica/defaults.h"
#include "replica/links/replica_options.h"

namespace kintsugi {

Status MovePieces(HandlerContext& call, const ReplicaOptions& links, ReplicaDefaults::Cut* cut);

}  // namespace kintsugi
