// Validate: the rules over all ranks, as a pure function of merged metadata, so that all ranks come to the same
// verdict.
//
// Rules, per name, in this order; the first that is broken is that name's error:
//   agreement    kind, dtype, global shape, grid and flags agree on all ranks                kKind ... kFlags
//   size         the global tensor fits 63 bits                                              kTooLarge
//   bounds       every box within the global shape, every flat range within its box          kOutOfBounds, kFlatRange
//   grid         where one is declared: one shape, on multiples of it, filling the tensor    kMisaligned
//   mains        no two main replicas of one shard                                           kDoubleMain, kObjectTwice
//   copies       every other copy is the same box and range as a main replica                kStrayCopy
//   cover        main replicas hold every element once, flattened or not, grid or not        kOverlap, kHole,
//                                                                                            kObjectMissing
// Before all names: ranks' refusals, ranks missing or merged twice. A shard without elements is valid anywhere within
// bounds and counts for nothing. A scalar has one element and one main replica.
// Cost: n log n in the number of shards (cover.h).
// Threads: pure.
// Source of the rules: `dist_checkpointing.validation` of Megatron-core and `dcp.utils` of Paddle, completed: there
// irregular shards, flat ranges, bounds and copies go unchecked, or one rank judges for all.
#pragma once

#include <vector>

#include "replica/layout/cover.h"
#include "replica/layout/error.h"
#include "replica/layout/metadata.h"

namespace kintsugi::layout {

struct ValidateOptions {
  // Ranks 0 to world_size - 1 must have contributed; 0: any may.
  int32_t world_size = 0;
  // What is asked for need not cover the tensors, nor have main replicas: only agreement, size, bounds and grid are
  // judged.
  bool is_request = false;
  size_t errors_max = 64;
  CoverCost* cost = nullptr;
};

// Errors in order: refusals, ranks, then names ascending, one each; none when the layout is right.
KINTSUGI_EXPORT std::vector<LayoutError> Validate(const Metadata& metadata, const ValidateOptions& options = {});

// The first error, and how many there are.
KINTSUGI_EXPORT Status ToStatus(const std::vector<LayoutError>& errors);

}  // namespace kintsugi::layout
