// Bytes as people read them: "1.5 MiB" (private).
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>

namespace kintsugi::resume {

inline std::string MiB(uint64_t bytes) {
  const uint64_t tenths = (bytes * 10 + (1 << 19)) >> 20;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

}  // namespace kintsugi::resume
