// Frames of a stream, found twice: by the decoder, which gets the stream in pieces, and in a slow and obvious way.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/net/frame.h"

namespace kintsugi::net {

struct Decoded {
  std::vector<std::string> payloads;
  FrameEvent::Kind end = FrameEvent::Kind::kNeedMore;
  bool mid_frame = false;
  bool operator==(const Decoded&) const = default;
};

// The whole stream is there.
inline Decoded DecodeObviously(std::string_view stream, size_t limit) {
  constexpr size_t kHeader = 4;  // not the decoder's own: that is what is checked
  Decoded decoded;
  while (stream.size() >= kHeader) {
    uint64_t length = 0;
    for (size_t i = 0; i < kHeader; ++i) length = length * 256 + static_cast<unsigned char>(stream[i]);
    if (length == 0 || length > limit) {
      decoded.end = length == 0 ? FrameEvent::Kind::kEmpty : FrameEvent::Kind::kOversized;
      return decoded;
    }
    if (kHeader + length > stream.size()) break;
    decoded.payloads.emplace_back(stream.substr(kHeader, length));
    stream.remove_prefix(kHeader + length);
  }
  decoded.mid_frame = !stream.empty();
  return decoded;
}

// `feed(take)` calls take(piece) with one piece after the other until it says stop.
template <typename Feed>
Decoded DecodePieces(size_t limit, Feed feed) {
  FrameDecoder decoder(limit);
  Decoded decoded;
  feed([&](std::string_view bytes) {
    FrameEvent event;
    while ((event = decoder.Next(&bytes)).kind == FrameEvent::Kind::kFrame)
      decoded.payloads.emplace_back(event.payload);
    decoded.end = event.kind;
    decoded.mid_frame = event.kind == FrameEvent::Kind::kNeedMore && decoder.mid_frame();
    return event.kind == FrameEvent::Kind::kNeedMore;
  });
  return decoded;
}

}  // namespace kintsugi::net
