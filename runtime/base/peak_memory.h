// The most memory that this process had at once, in bytes of pages that stood in memory (VmHWM of /proc/self/status).
//
// getrusage's ru_maxrss begins with what the parent had when it forked, so a small program that a big one starts has the
// big one's peak.
//
// Errors: none; 0 where the kernel does not say.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace kintsugi {

inline uint64_t PeakMemoryBytes() {
  std::ifstream status("/proc/self/status");
  uint64_t kib = 0;
  for (std::string word; status >> word;) {
    if (word == "VmHWM:" && status >> kib) break;
  }
  return kib * 1024;
}

}  // namespace kintsugi
