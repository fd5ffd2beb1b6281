// WritePart: one rank's part of a native checkpoint, from live memory straight to the disk.
//
// The part goes into the unfinished folder of its step and generation (names.h) and is not visible until Publish has
// found all parts there. No staging copy of the state: tensors are gathered into writes of several MiB, each block's
// checksum is taken just before its bytes are written. Tensors on a device go through a pinned buffer of 4 MiB.
//
// Threads: the caller's; the state must not change meanwhile (the trainer is parked).
// Errors: as FileSystem says, with step, generation and rank in front; kCancelled and kDeadlineExceeded between two
//   writes; kCancelled also where another writer of this save has failed and removed the folder; kInvalidArgument for a
//   request that contradicts itself; kFailedPrecondition for memory on a device that the registry does not reach; the
//   device's own. After any error but a refused request the unfinished folder is removed: that save cannot become
//   complete any more, and its space may be what the next attempt lacks.
// Attempts of older generations for the same step are removed at the start.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "callbacks/handlers/cancel.h"
#include "callbacks/handlers/orders.h"
#include "callbacks/state/registry.h"
#include "replica/save/file_system.h"
#include "replica/save/manifest.h"
#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace kintsugi::checkpoint {

struct SaveRequest {
  std::string root;
  SaveIdentity identity;
  Rank writer;
  // What to write: for each entry every tensor of its layout, as registered by the writer, and mirrored objects.
  std::vector<SaveEntry> entries;
  const std::map<std::string, std::string>* aliases = nullptr;  // alias -> key of a registered tensor; null: none
  TimePoint deadline = TimePoint::Max();
  const CancelToken* cancel = nullptr;
};

// Gives the mirrored bytes of a rank at the step of the save.
using MirroredOf = std::function<Result<std::vector<uint8_t>>(Rank)>;

struct Written {
  uint64_t data_bytes = 0;  // tensors and objects, with their alignment
  uint64_t files = 0;
};

KINTSUGI_EXPORT Result<Written> WritePart(const StateRegistry& registry, const SaveRequest& request,
                                          const MirroredOf& mirrored_of, FileSystem& files = PosixFileSystem());

}  // namespace kintsugi::checkpoint
