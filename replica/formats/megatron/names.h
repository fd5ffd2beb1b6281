// Names of Megatron's checkpoints: the tracker in the root, and the folder of an iteration.
//
// Errors: kDataLoss where the tracker is torn.
// Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace kintsugi::formats::megatron {

inline constexpr std::string_view kTracker = "latest_checkpointed_iteration.txt";

std::string IterationFolder(uint64_t step);
// The folder that the tracker in `path` names, or the path itself.
Result<std::string> FolderOf(const std::string& path);
// What the tracker in `path` says that is not so, and which folders are there; empty: it names a folder, or there is none.
std::string WrongTracker(const std::string& path);
// Of an iteration's folder.
std::optional<uint64_t> StepOf(const std::string& folder);

}  // namespace kintsugi::formats::megatron
