// SaveAs: a native checkpoint that is whole is written once more in another format, below a folder of checkpoints of
// that format, where its own readers look for it.
//
//   ROOT/checkpoint-12/                        what Format::StepNamesOf says, with our sidecar in it
//   ROOT/checkpoint-12.unfinished-PID/         being written
//   ROOT/latest                                moved last
//
// Of a Python trainer's state safetensors, torch and dcp have the model under its own names, or those of the program, with its
// buffers (model_part.h), and safetensors and torch the rest apart: from_pretrained, load_state_dict and dcp.load take it, and a
// run goes on from it. Where another format lacks the buffers, a warning says so.
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

#include "replica/aoa/user_macro.h"
#include "replica/formats/write.h"
#include "replica/save/retention.h"

namespace kintsugi::formats {

struct SaveAsOptions {
  std::string format;
  std::vector<std::string> statements;  // AOA; empty: names stay
  bool reverse = false;                 // they are run backwards
  aoa::UserMacros macros;               // words of their own
  bool model_only = false;              // model_only.h; before the program
  uint64_t file_bytes_max = 0;  // of a file of Hugging Face shards; 0: one for each of `shards`, of 256 MiB at least
  int shards = 1;               // files side by side, where the format has such
  checkpoint::Retention keep;   // which of the same format stay
  bool moves_tracker = true;
  int threads = 0;  // 0: as many as cores
  uint64_t memory_bytes = uint64_t{256} << 20;
  std::function<Status()> poll;
};

struct SavedAs {
  std::string path;
  WriteResult written;
  // Side files left out, and why; what was taken for granted; old checkpoints that could not be removed.
  std::vector<std::string> warnings;
};

// `source` is read through mappings; `files` is the disk that `root` is on.
KINTSUGI_EXPORT Result<SavedAs> SaveAs(const std::string& source, const std::string& root, const SaveAsOptions& options,
                                       checkpoint::FileSystem& files = checkpoint::PosixFileSystem());

// "dcp,safetensors": names of formats that are written, none twice; `native` is left out, since a run always writes it.
// kInvalidArgument names what is none.
KINTSUGI_EXPORT Result<std::vector<std::string>> FormatsToSave(const std::string& list);

}  // namespace kintsugi::formats
