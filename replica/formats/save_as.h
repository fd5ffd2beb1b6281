// SaveAs: a native checkpoint that is whole is written once more in another format, below a folder of checkpoints of
// that format, where its own readers look for it.
//
//   ROOT/checkpoint-12/                        what Format::StepNamesOf says, with our sidecar in it
//   ROOT/checkpoint-12.unfinished-PID/         being written
//   ROOT/latest                                moved last
//
// Order, each step durable before the next: data files, marks, sidecar, folder; rename, root; tracker, root; only then
// is anything removed, and what is removed loses its name first. So a reader that follows the tracker finds a whole
// checkpoint at any moment, whatever stops this.
// Errors: those of Convert; nothing that was there before is lost.
// Threads: as write.h; one writer of a root at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "replica/formats/write.h"

namespace kintsugi::formats {

struct SaveAsOptions {
  std::string format;
  std::vector<std::string> statements;  // AOA; empty: names stay
  int shards = 1;                       // files side by side, where the format has such
  int keep = 2;                         // checkpoints that stay, this one included
  bool moves_tracker = true;
  int threads = 0;  // 0: as many as cores
  uint64_t memory_bytes = uint64_t{256} << 20;
  std::function<Status()> poll;
};

struct SavedAs {
  std::string path;
  WriteResult written;
  std::vector<std::string> warnings;  // old checkpoints that could not be removed, side files left out, and why
};

// `source` is read through mappings; `files` is the disk that `root` is on.
KINTSUGI_EXPORT Result<SavedAs> SaveAs(const std::string& source, const std::string& root, const SaveAsOptions& options,
                                       checkpoint::FileSystem& files = checkpoint::PosixFileSystem());

// "dcp,safetensors": names of formats that are written, none twice; `native` is left out, since a run always writes it.
// kInvalidArgument names what is none.
KINTSUGI_EXPORT Result<std::vector<std::string>> FormatsToSave(const std::string& list);

}  // namespace kintsugi::formats
