// Affine parts of a use: the boxes of its source box that lie in a shard's memory with one stride for each axis (private to
// this folder).
//
// What: renames, cuts and permutes leave a source box in one part. A reshape bends it: the rows of a stored matrix that
// become blocks of rows, with their axes exchanged, have one stride within a block and another from block to block. There
// the box is cut at every bend, as the digits of the steps have it (aoa::DigitMap). Cost: linear in the parts, which are as
// many as blocks.
// Errors: as StepMap; kTooLarge for more than kAffinePartsMax.
// Threads: pure.
#pragma once

#include <vector>

#include "replica/plan/renamed_plan.h"
#include "replica/reshard/destination.h"

namespace kintsugi::reshard {

inline constexpr size_t kAffinePartsMax = size_t{1} << 20;

// `shard` takes coordinates of the target tensor to the shard's memory. The boxes of the result are in coordinates of the
// stored tensor, meet nowhere and together are the use's source box.
Result<std::vector<StridedMap>, layout::LayoutError> AffineParts(const plan::Use& use, const StridedMap& shard);

}  // namespace kintsugi::reshard
