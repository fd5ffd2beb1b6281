// Side files: what a checkpoint is no use without and no library keeps as state (a model's configuration, a tokenizer,
// training arguments), copied into it beside the state.
//
// In a native checkpoint `config.json` is called side.config.json; the manifest lists name, length and checksums, so
// that what is read is what was copied. The publisher copies, from its own host's disk, after all parts and before
// the manifest.
//
// Threads: the caller's.
// Errors: those of writing, and no other: a checkpoint is not lost because a file beside it cannot be read, so that is
// told, and the file is left out.
// Units: bytes.
#pragma once

#include <string>
#include <vector>

#include "replica/save/file_system.h"
#include "replica/save/manifest.h"

namespace kintsugi::checkpoint {

inline constexpr std::string_view kSidePrefix = "side.";
// Of one file; a tokenizer has tens of MiB.
inline constexpr uint64_t kSideFileBytesMax = uint64_t{1} << 30;

struct SideFilesCopied {
  std::vector<SideFile> files;
  std::vector<std::string> left_out;  // sentences: which, and why
};

// Copies the files at `paths` into `folder`, each synced; of two of one name the first.
Result<SideFilesCopied> CopySideFiles(const std::vector<std::string>& paths, const std::string& folder,
                                      FileSystem& files);

}  // namespace kintsugi::checkpoint
