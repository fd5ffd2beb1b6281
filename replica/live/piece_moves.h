// PlanPieceMoves: the moves of a reshard between live ranks, judged, planned and proven as ReshardLive does where state of a run is
// cut anew (copies by place, a whole target, nothing left over), without memory or links.
//
// Threads: pure.
// Errors: as ReshardLive's before anything moves; kInternal: ranks that plan their own moves alone would plan others.
#pragma once

#include "callbacks/state/piece_move.h"

namespace kintsugi::live {

KINTSUGI_EXPORT Result<std::vector<PieceMove>> PlanPieceMoves(const TensorsByRank& held, const TensorsByRank& wanted);

}  // namespace kintsugi::live
