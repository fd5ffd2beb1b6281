// Sidecar: our own proof beside a foreign checkpoint: length and block checksums of every file.
//
// What: written last, synced with its folder; foreign readers do not look at it. In a folder it is
// kintsugi.digests.json, for a single file FILE.kintsugi.json. Sealed as a native manifest is
// (replica/save/manifest.h), so that a torn or changed sidecar is no sidecar.
// Errors: kNotFound where there is none; kDataLoss names file, block and both values.
// Units: bytes.
// Threads: any.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "replica/formats/outline.h"
#include "replica/save/file_system.h"

namespace kintsugi::formats {

inline constexpr std::string_view kSidecarName = "kintsugi.digests.json";

struct Sidecar {
  std::string format;
  uint64_t step = 0;
  std::vector<WrittenFile> files;
  std::vector<std::string> side_files;  // names of those files that are of no format: configuration, tokenizer
  bool is_model_alone = false;          // of what a run saved: for readers
  std::vector<checkpoint::TensorSum> tensor_sums{};  // of the tensors as they were written; ascending by key
};

// Where the sidecar of what lies at `path` is.
std::string SidecarPath(const std::string& path, bool is_folder);
std::string EncodeSidecar(const Sidecar& sidecar);
Result<Sidecar> DecodeSidecar(const std::string& text, const std::string& name);
Result<Sidecar> ReadSidecar(const std::string& path, bool is_folder, checkpoint::FileSystem& files);

struct SidecarVerdict {
  uint64_t files = 0;
  uint64_t bytes = 0;
};
// Reads every file that the sidecar of `path` lists and compares every block; `each` sees those that are as they should
// be: the file's path, where in it they begin, and their bytes.
using SeeBlock = std::function<void(const std::string& file, uint64_t at, std::span<const uint8_t> block)>;
Result<SidecarVerdict> VerifySidecar(const std::string& path, bool is_folder, const Sidecar& sidecar,
                                     checkpoint::FileSystem& files, const SeeBlock& each);

}  // namespace kintsugi::formats
