// Writer: an outline becomes files, in windows, proven and published in one moment.
//
// What: the tensor segments are cut into windows of a few MiB; all windows together are the target layout of one plan,
// which is proven before the first byte is written. Then each data file is written front to back by one thread, several
// files side by side; a window that lies in a source as one run is written from there. Everything goes into an
// unfinished sibling of the destination; data files are synced, then marks, then our sidecar, then the folder; a rename
// makes it visible. Whatever stops it before leaves the destination as it was.
// Errors: as FileSystem; kFailedPrecondition where the destination is there already; the plan's. The unfinished sibling
// is removed after an error; one that a killed process left is removed by the next writer of the same name.
// Threads: starts its own and joins them. Memory: `memory_bytes` for buffers and for pages of sources that are mapped.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "replica/formats/format.h"
#include "replica/formats/outline.h"
#include "replica/formats/sidecar.h"
#include "replica/save/file_system.h"

namespace kintsugi::formats {

inline constexpr uint64_t kMemoryBytesMin = uint64_t{16} << 20;
// In the names of what is being written, before the writer's process: never whole, removed by the next writer.
inline constexpr std::string_view kUnfinished = ".unfinished-";

struct WriteOptions {
  uint64_t memory_bytes = uint64_t{1} << 30;
  int threads = 0;         // 0: as many as cores
  bool overwrite = false;  // a destination that is there is exchanged for the new one
  bool sidecar = true;
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes; from any thread, one at a time
  std::function<Status()> poll;                                 // asked between two windows; its error ends the writing
};

struct WriteResult {
  uint64_t bytes = 0;
  uint64_t files = 0;
  uint64_t bytes_unstaged = 0;  // of tensors: written from where they lay
};

// `tensors` are those of the outline, under their new names; `source` is what they are made of. `engine`: null where
// names stay.
Result<WriteResult> WriteOutline(const Outline& outline, const Content& tensors, const Catalog& source,
                                 const aoa::Engine* engine, const std::string& destination, const Sidecar& about,
                                 const WriteOptions& options, checkpoint::FileSystem& files);

}  // namespace kintsugi::formats
