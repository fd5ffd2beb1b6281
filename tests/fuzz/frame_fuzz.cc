// The frame decoder, in pieces, against an obvious one that has the whole stream. Input: how it is cut, the limit,
// bytes.
#include "runtime/base/check.h"
#include "runtime/net/frame.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/net/obvious_frames.h"

namespace kintsugi::fuzz {

bool Try(std::string_view input) {
  const uint8_t how = TakeByte(&input);
  const size_t limit = 1 + 4 * size_t{TakeByte(&input)};
  const net::Decoded decoded = net::DecodePieces(limit, [&](auto take) { InPieces(how, input, take); });
  KINTSUGI_CHECK(decoded == net::DecodeObviously(input, limit), "the stream was cut into other frames than it has");
  return !decoded.payloads.empty() && decoded.end == net::FrameEvent::Kind::kNeedMore && !decoded.mid_frame;
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
