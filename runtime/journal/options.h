// What a controller's driver is told about its journal.
#pragma once

#include <cstdint>
#include <string>

namespace kintsugi::journal {

// The journal's name in the folder of a run or of a report.
inline constexpr const char* kFileName = "run.journal";
inline constexpr uint64_t kBytesMaxDefault = 64u << 20;
// A limit below holds no run worth replaying.
inline constexpr uint64_t kBytesMaxLeast = 4096;

struct RecorderOptions {
  std::string path;  // empty: nothing is recorded
  uint64_t bytes_max = kBytesMaxDefault;
  size_t waiting_bytes_max = 8u << 20;  // not yet taken by the disk
};

}  // namespace kintsugi::journal
