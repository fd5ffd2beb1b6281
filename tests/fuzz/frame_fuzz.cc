// The frame decoder, in pieces, against an obvious one that has the whole stream. Input: how it is cut, the limit,
// bytes.
#include "runtime/base/check.h"
#include "runtime/net/frame.h"
#include "tests/fuzz/fuzz_target.h"

namespace kintsugi::fuzz {
namespace {

using net::FrameEvent;

struct Decoded {
  std::vector<std::string> payloads;
  FrameEvent::Kind end = FrameEvent::Kind::kNeedMore;
  bool mid_frame = false;
  bool operator==(const Decoded&) const = default;
};

Decoded DecodeObviously(std::string_view stream, size_t limit) {
  Decoded decoded;
  while (stream.size() >= net::kFrameHeaderBytes) {
    uint64_t length = 0;
    for (size_t i = 0; i < net::kFrameHeaderBytes; ++i) length = length * 256 + static_cast<unsigned char>(stream[i]);
    if (length == 0 || length > limit) {
      decoded.end = length == 0 ? FrameEvent::Kind::kEmpty : FrameEvent::Kind::kOversized;
      return decoded;
    }
    if (net::kFrameHeaderBytes + length > stream.size()) break;
    decoded.payloads.emplace_back(stream.substr(net::kFrameHeaderBytes, length));
    stream.remove_prefix(net::kFrameHeaderBytes + length);
  }
  decoded.mid_frame = !stream.empty();
  return decoded;
}

Decoded DecodeInPieces(uint8_t how, std::string_view stream, size_t limit) {
  net::FrameDecoder decoder(limit);
  Decoded decoded;
  InPieces(how, stream, [&](std::string_view bytes) {
    FrameEvent event;
    while ((event = decoder.Next(&bytes)).kind == FrameEvent::Kind::kFrame)
      decoded.payloads.emplace_back(event.payload);
    decoded.end = event.kind;
    decoded.mid_frame = event.kind == FrameEvent::Kind::kNeedMore && decoder.mid_frame();
    return event.kind == FrameEvent::Kind::kNeedMore;
  });
  return decoded;
}

}  // namespace

bool Try(std::string_view input) {
  const uint8_t how = TakeByte(&input);
  const size_t limit = 1 + 4 * size_t{TakeByte(&input)};
  const Decoded decoded = DecodeInPieces(how, input, limit);
  KINTSUGI_CHECK(decoded == DecodeObviously(input, limit), "the stream was cut into other frames than it has");
  return !decoded.payloads.empty() && decoded.end == FrameEvent::Kind::kNeedMore && !decoded.mid_frame;
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const char how : {'\0', '\5', '\x90'}) {
    std::string seed = {how, '\x20'};
    for (const size_t size : {1, 3, 4, 100, 128}) net::AppendFrame(&seed, std::string(size, 'x'));
    seeds.push_back(std::move(seed));
  }
  return seeds;
}

}  // namespace kintsugi::fuzz
