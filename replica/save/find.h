// Finding checkpoints: what lies in a root, and which one to resume from.
//
// Threads: any.
// Errors: kNotFound when there is none (and why each candidate was refused); kDataLoss and kFailedPrecondition name
// what is torn, damaged or missing in one checkpoint.
#pragma once

#include <string>
#include <vector>

#include "replica/save/file_system.h"
#include "replica/save/manifest.h"

namespace kintsugi::checkpoint {

struct CheckpointInfo {
  std::string path;
  Manifest manifest;
  uint64_t data_bytes = 0;
  Step step() const { return manifest.identity.step; }
};

// Reads and checks the manifest of one checkpoint folder, nothing else.
KINTSUGI_EXPORT Result<CheckpointInfo> ReadManifest(const std::string& path, FileSystem& files = PosixFileSystem());

// Reads and checks one listed part: its digest, its identity, and that its data files are there in full size.
KINTSUGI_EXPORT Result<Part> ReadPart(const CheckpointInfo& info, const ListedPart& listed,
                                      FileSystem& files = PosixFileSystem());

// Manifest, every part, every file's size, and that nothing is missing; not the data's checksums (Verify reads those).
KINTSUGI_EXPORT Result<CheckpointInfo> Inspect(const std::string& path, FileSystem& files = PosixFileSystem());

// Steps of all published folders in `root`, newest first, complete or not.
KINTSUGI_EXPORT Result<std::vector<Step>> ListSteps(const std::string& root, FileSystem& files = PosixFileSystem());

// What `latest` names, checked only for being a folder's name. kNotFound without the file, kDataLoss when it is torn.
KINTSUGI_EXPORT Result<Step> ReadLatest(const std::string& root, FileSystem& files = PosixFileSystem());

// The checkpoint to resume from: the newest complete one of the job that `latest` names; where `latest` is absent, torn
// or names a damaged one, the newest complete one at all. A save made without a quorum is taken only when there is no
// other. `refused` collects why newer ones were passed over.
KINTSUGI_EXPORT Result<CheckpointInfo> FindNewestComplete(const std::string& root,
                                                          FileSystem& files = PosixFileSystem(),
                                                          std::vector<std::string>* refused = nullptr);

}  // namespace kintsugi::checkpoint
