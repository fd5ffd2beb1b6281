// Frames: records in a file, each whole or recognizably not.
//
// A file is 16 bytes of magic, then frames: length (4 bytes), its complement (4), checksum (8), payload. Numbers are
// least significant byte first. The checksum is XXH3 over the payload with the checksum before as its seed, so that a
// frame that was dropped, moved or doubled does not fit either.
// Units: bytes.
// Threads: pure functions and values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace kintsugi::journal {

inline constexpr std::string_view kMagic = "kintsugi-journal";
inline constexpr size_t kFrameHeaderBytes = 16;
// The registry of a rank with a million tensors is smaller.
inline constexpr uint32_t kPayloadBytesMax = 256u << 20;

class FrameWriter {
 public:
  // Appends a frame to `out`. REQUIRES: payload.size() <= kPayloadBytesMax.
  void Append(std::string_view payload, std::string* out);

 private:
  uint64_t before_ = 0;
};

class FrameReader {
 public:
  // The whole file. kInvalidArgument: it is no journal.
  static Result<FrameReader> Open(std::string_view file);

  enum class Next : uint8_t {
    kFrame,
    kEnd,   // the file ends with a whole frame
    kTorn,  // it ends within one: its writer died
  };
  // kDataLoss, with the place: bytes are damaged.
  Result<Next> Read(std::string_view* payload);
  size_t offset() const { return offset_; }  // of the next frame
  uint64_t frames() const { return frames_; }
  size_t bytes_left() const { return file_.size() - offset_; }

 private:
  explicit FrameReader(std::string_view file) : file_(file), offset_(kMagic.size()) {}
  std::string_view file_;
  size_t offset_;
  uint64_t frames_ = 0;
  uint64_t before_ = 0;
};

}  // namespace kintsugi::journal
