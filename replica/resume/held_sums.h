// HeldSums: that all ranks together hold of each tensor what the checkpoint says it was, whatever the cuts then and
// now.
//
// What: after a load a rank sums up what it holds, in place, by the places of its bytes in the global tensors
// (replica/save/logical_sum.h); the sums of all ranks, of copies one, must be those that the checkpoint's writers
// found. A block's checksum proves what was read; this proves where it has gone. Copies of a shard are compared with
// each other too.
// Not compared, and told: tensors without a sum in the checkpoint, or that the ranks hold in part, or cut in ways
// that overlap; what is made of stored tensors (cast, fused, split, cut or filled up). What others read for this rank
// is theirs to sum up.
// Memory: rank 0 holds what all ranks say, about 10 bytes and 3 for each axis of a shard. Cost: a pass over memory by
// several threads.
// Errors: kDataLoss, the same on every rank, names the tensor and both sums; the store's, the device's.
// Threads: the trainer's, parked; others beside it, gone when this returns. Every rank calls it.
#pragma once

#include <functional>
#include <string>

#include "callbacks/state/registry.h"
#include "replica/resume/agreement.h"
#include "replica/save/load.h"

namespace kintsugi::resume {

struct SumsCompared {
  uint64_t equal = 0;                     // tensors of the checkpoint, over all ranks
  std::vector<std::string> not_compared;  // ascending: stored keys over all ranks, and registered ones of this rank
  bool has_sums = false;                  // the checkpoint has some

  // For the run's log; one line.
  std::string Note() const;
};

struct HeldSumsOptions {
  int threads = 0;               // 0: as the cores allow
  std::function<Status()> poll;  // its error ends the comparison; empty: nothing does
};

// `loaded`: what this rank's load gave; its manifest has the sums.
KINTSUGI_EXPORT Result<SumsCompared> CompareHeldSums(const StateRegistry& registry, const checkpoint::Loaded& loaded,
                                                     int world_size, const HeldSumsOptions& options,
                                                     Agreement* agreement);

}  // namespace kintsugi::resume
