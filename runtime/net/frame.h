// Frames: how messages are cut out of a byte stream. A frame is its payload's length as four bytes, most significant
// first, and then the payload.
//
// Pure: bytes go in, events come out; nothing here knows a socket.
// Invariants: a payload has 1 to limit bytes; memory held for an unfinished frame grows with the bytes that really
// came, never with the length that was announced; after a fault the decoder yields that fault for ever.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kintsugi::net {

inline constexpr size_t kFrameHeaderBytes = 4;
inline constexpr size_t kDefaultFrameLimitBytes = 4u << 20;

using FrameHeader = std::array<char, kFrameHeaderBytes>;

// REQUIRES: 0 < payload_bytes <= UINT32_MAX.
FrameHeader EncodeFrameHeader(size_t payload_bytes);
void AppendFrame(std::string* out, std::string_view payload);

struct FrameEvent {
  enum class Kind { kNeedMore, kFrame, kEmpty, kOversized };
  Kind kind = Kind::kNeedMore;
  std::string_view payload;      // kFrame: valid until the next call of Next and while the input lives
  uint64_t announced_bytes = 0;  // kOversized: the length that the header names
};

class FrameDecoder {
 public:
  explicit FrameDecoder(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Takes bytes from the front of `*bytes`, at most up to the end of one frame. Call again until kNeedMore.
  FrameEvent Next(std::string_view* bytes);

  // True between a frame's first byte and its last: an end of the stream here is a truncated frame.
  bool mid_frame() const { return header_bytes_ > 0 && !delivered_; }
  size_t limit_bytes() const { return limit_bytes_; }

 private:
  bool TakeHeader(std::string_view* bytes);
  void Reset();

  const size_t limit_bytes_;
  FrameHeader header_{};
  size_t header_bytes_ = 0;
  uint64_t payload_bytes_ = 0;
  std::string partial_;     // payload so far, when it came in more than one piece
  bool delivered_ = false;  // the frame in partial_ has been handed out; the next call drops it
};

}  // namespace kintsugi::net
