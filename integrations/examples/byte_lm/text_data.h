// TextData: the bytes of the training text, read once and cut into windows.
//
// Window i holds the context + 1 bytes from i * context on: neighbours share one byte, so every byte but the first is
// predicted once an epoch.
//
// Threads: immutable after Load.
// Errors: a path that is missing, unreadable, empty, or neither file nor directory is named with its remedy.
// Invariants: the same paths with the same contents give the same bytes in the same order on every rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace kintsugi::byte_lm {

// The licence texts that every Debian system carries (package base-files).
inline constexpr const char* kDefaultTextPath = "/usr/share/common-licenses";

class TextData {
 public:
  // Files are read in the order given; a directory stands for its regular files below, in path order, without symbolic
  // links and empty files. No paths at all stand for kDefaultTextPath.
  static Result<TextData> Load(const std::vector<std::string>& paths);
  static TextData FromBytes(std::string bytes);

  uint64_t WindowCount(int64_t context) const;
  // REQUIRES: window < WindowCount(context).
  std::span<const uint8_t> Window(uint64_t window, int64_t context) const;

  uint64_t size_bytes() const { return bytes_.size(); }
  size_t file_count() const { return file_count_; }
  // Hash of all bytes: equal on all ranks, or they do not train on the same text.
  uint64_t Fingerprint() const;

 private:
  std::string bytes_;
  size_t file_count_ = 0;
};

}  // namespace kintsugi::byte_lm
