// Load: fills a rank's registered tensors from a native checkpoint, straight into their memory; of a device by way of a
// pinned buffer of one block.
//
// Each tensor comes from a part that stores exactly the same shard: key, dtype, global shape, box, flattened range,
// layout. Shards that this rank itself held go first. What does not fit so, another layout or another number of ranks,
// is `reshape`'s matter (replica/resume), and without it an error.
//
// Threads: the trainer's, parked.
// Errors: kFailedPrecondition names key and both shards, before any memory is touched; kDataLoss names tensor, block
// and file: registered memory is then undefined until a repair or another load; kNotFound without a manifest.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
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
  int world_size = 0;           // of the run; another than the checkpoint's needs `reshape`. 0: not compared
  bool always_reshape = false;  // names or types change (an AOA program): also where layouts are equal
  // Keys of registered tensors that another rank reads for this one: they are neither read nor judged here. Null: none.
  const std::set<std::string>* elsewhere = nullptr;
  // Whether all ranks can take what is stored as it is, given whether this one can: where one cannot, all reshape.
  // Needed with `reshape`.
  std::function<Result<bool>(bool fits)> all_fit;
  // Loads a checkpoint that does not fit as it is.
  std::function<Result<struct Loaded>(const CheckpointInfo& info, const struct LoadRequest& request)> reshape;
};

struct Loaded {
  CheckpointInfo info;
  std::string note;               // what a person should know; empty: nothing out of the ordinary
  std::vector<uint8_t> mirrored;  // this rank's, for StateRegistry::RestoreMirrored; empty when it registered none
  uint64_t bytes = 0;
  // Registered tensors that this rank has filled itself, by key: the stored tensor that each is a shard of now,
  // unless it was cast, filled up or cut; nothing: it is made of stored tensors by a program. Type and shape tell the
  // rest.
  std::map<std::string, std::optional<std::string>> held;
  // By key: what was summed up while it arrived (arrived_sums.h); the memory of the others must be looked at.
  std::map<std::string, uint64_t> sums;
};

// `registry` gives descriptors; the memory behind them is written.
KINTSUGI_EXPORT Result<Loaded> Load(const StateRegistry& registry, const LoadRequest& request,
                                    FileSystem& files = PosixFileSystem());

}  // namespace kintsugi::checkpoint
