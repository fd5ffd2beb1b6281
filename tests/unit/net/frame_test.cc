#include "runtime/net/frame.h"

#include <gtest/gtest.h>

#include <vector>

namespace kintsugi::net {
namespace {

using Kind = FrameEvent::Kind;

// Feeds `stream` in pieces of `piece` bytes and returns the payloads, and the event that ended it.
std::vector<std::string> Decode(std::string_view stream, size_t piece, size_t limit, FrameEvent* last) {
  FrameDecoder decoder(limit);
  std::vector<std::string> payloads;
  for (size_t at = 0; at < stream.size(); at += piece) {
    const std::string copy(stream.substr(at, piece));  // its own memory, so that a sanitizer sees reads beyond it
    std::string_view bytes = copy;
    while (true) {
      *last = decoder.Next(&bytes);
      if (last->kind != Kind::kFrame) break;
      payloads.emplace_back(last->payload);
    }
    if (last->kind != Kind::kNeedMore) break;
    EXPECT_TRUE(bytes.empty());
  }
  return payloads;
}

TEST(FrameDecoder, FindsTheSameFramesHoweverTheStreamIsCut) {
  const std::vector<std::string> payloads = {"a", std::string(300, 'b'), std::string(1, '\0'), std::string(70000, 'c')};
  std::string stream;
  for (const std::string& payload : payloads) AppendFrame(&stream, payload);
  for (size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{5}, size_t{4096}, stream.size()}) {
    FrameEvent last;
    EXPECT_EQ(Decode(stream, piece, kDefaultFrameLimitBytes, &last), payloads) << "pieces of " << piece;
    EXPECT_EQ(last.kind, Kind::kNeedMore);
  }
}

TEST(FrameDecoder, TakesAFrameAtTheLimitAndRefusesOneByteMore) {
  FrameEvent last;
  EXPECT_EQ(Decode(std::string("\0\0\0\x08", 4) + "12345678", 5, 8, &last).size(), 1u);
  EXPECT_TRUE(Decode(std::string("\0\0\0\x09", 4) + "123456789", 5, 8, &last).empty());
  EXPECT_EQ(last.kind, Kind::kOversized);
  EXPECT_EQ(last.announced_bytes, 9u);
}

TEST(FrameDecoder, RefusesAnEmptyFrame) {
  FrameEvent last;
  EXPECT_EQ(Decode(std::string("\0\0\0\x01x\0\0\0\0", 9), 9, 8, &last).size(), 1u);
  EXPECT_EQ(last.kind, Kind::kEmpty);
}

TEST(FrameDecoder, RepeatsItsFaultWhateverComesNext) {
  FrameDecoder decoder(8);
  std::string_view bytes = "HTTP/1.1";
  EXPECT_EQ(decoder.Next(&bytes).kind, Kind::kOversized);
  const std::string good("\0\0\0\x01x", 5);
  bytes = good;
  EXPECT_EQ(decoder.Next(&bytes).kind, Kind::kOversized);
}

TEST(FrameDecoder, KnowsThatItStandsWithinAFrame) {
  FrameDecoder decoder(8);
  EXPECT_FALSE(decoder.mid_frame());
  const std::string stream("\0\0\0\x02xy", 6);
  for (size_t i = 0; i < stream.size(); ++i) {
    std::string_view bytes(&stream[i], 1);
    const FrameEvent event = decoder.Next(&bytes);
    EXPECT_EQ(event.kind, i + 1 == stream.size() ? Kind::kFrame : Kind::kNeedMore);
    EXPECT_EQ(decoder.mid_frame(), i + 1 < stream.size()) << "after byte " << i;
  }
}

TEST(FrameHeader, PutsTheMostSignificantByteFirst) {
  EXPECT_EQ(EncodeFrameHeader(0x01020304), (FrameHeader{1, 2, 3, 4}));
}

}  // namespace
}  // namespace kintsugi::net
