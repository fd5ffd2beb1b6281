// Load: fills a rank's registered tensors from a native checkpoint, straight into their memory; of a device by way of a
// pinned buffer of one block.
//
// Each tensor comes from a part that stores exactly the same shard: key, dtype, global shape, box, flattened range,
// layout. Shards that this rank itself held go first. Another layout of the same tensors is the reshard engine's matter
// and refused here.
//
// Threads: the trainer's, parked. Errors: kFailedPrecondition names key and both shards, before any memory is touched;
// kDataLoss names tensor, block and file: registered memory is then undefined until a repair or another load;
// kNotFound without a manifest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "callbacks/handlers/cancel.h"
#include "callbacks/state/registry.h"
#include "replica/save/find.h"
#include "runtime/base/clock.h"

namespace kintsugi::checkpoint {

struct LoadRequest {
  std::string path;  // the checkpoint's folder
  Rank self;
  TimePoint deadline = TimePoint::Max();
  const CancelToken* cancel = nullptr;
};

struct Loaded {
  CheckpointInfo info;
  std::vector<uint8_t> mirrored;  // this rank's, for StateRegistry::RestoreMirrored; empty when it registered none
  uint64_t bytes = 0;
};

// `registry` gives descriptors; the memory behind them is written.
KINTSUGI_EXPORT Result<Loaded> Load(const StateRegistry& registry, const LoadRequest& request,
                                    FileSystem& files = PosixFileSystem());

}  // namespace kintsugi::checkpoint
