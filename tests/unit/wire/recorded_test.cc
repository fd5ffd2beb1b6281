// Frames that an older program wrote: every one is still taken for what it was, and written again byte by byte.
//
// recorded_frames.txt: one frame to a line: which way it went, its bytes, and what it says as words. The first ones are of
// 2026-11-25, when hand-written code filled protobuf's generated classes. A line is never changed: who changes what a frame
// means raises the handshake's version instead (runtime/net/handshake.h).
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "runtime/journal/text.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/node_codec.h"
#include "runtime/wire/node_fields.h"
#include "runtime/wire/words.h"
#include "tests/support/hex.h"

namespace kintsugi::wire {
namespace {

struct Taken {
  std::string again;  // the bytes that it gives when it is written
  std::string words;
};

Result<Taken> TakeFromAgent(const std::string& bytes) {
  KINTSUGI_ASSIGN_OR_RETURN(const AgentFrame frame, DecodeFromAgent("job", bytes));
  if (const auto* report = std::get_if<RankReport>(&frame.message))
    return Taken{Encode("job", frame.header, *report), WordWriter{}.Sentence(*report)};
  const auto& message = std::get<core::AgentMessage>(frame.message);
  return Taken{Encode("job", frame.header, message),
               journal::WriteEvent(core::FromAgent{frame.header, message}, Term{}, TimePoint())};
}

Result<Taken> Take(const std::string& way, const std::string& bytes) {
  if (way == "agent") return TakeFromAgent(bytes);
  if (way == "controller") {
    KINTSUGI_ASSIGN_OR_RETURN(const ControllerFrame frame, DecodeFromController("job", bytes));
    return Taken{Encode("job", frame.header, frame.message),
                 journal::WriteAction(core::Send{frame.header, frame.message}, Term{}, TimePoint()).at(0)};
  }
  if (way == "node") {
    KINTSUGI_ASSIGN_OR_RETURN(const NodeFrame frame, DecodeFromNode("job", bytes));
    return Taken{Encode("job", frame.term, frame.message), WordWriter{}.Sentence(frame.message)};
  }
  KINTSUGI_ASSIGN_OR_RETURN(const NodeOrderFrame frame, DecodeToNode("job", bytes));
  return Taken{Encode("job", frame.term, frame.order), WordWriter{}.Sentence(frame.order)};
}

TEST(RecordedFrames, AreStillTakenForWhatTheyWere) {
  std::ifstream file(KINTSUGI_RECORDED "/recorded_frames.txt");
  std::map<std::string, std::map<std::string, int>> kinds;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string way, hex, said;
    words >> way >> hex;
    std::getline(words >> std::ws, said);
    const std::string bytes = FromHex(hex);
    const Result<Taken> taken = Take(way, bytes);
    ASSERT_TRUE(taken.ok()) << line << "\n" << taken.status().ToString();
    EXPECT_EQ(taken->words, said) << line;
    EXPECT_EQ(taken->again, bytes) << line;
    // The word before the fields; of an agent's or a controller's after ": ".
    const size_t colon = way == "node" || way == "order" ? std::string::npos : said.find(": ");
    std::istringstream word(colon == std::string::npos ? said : said.substr(colon + 2));
    word >> said;
    ++kinds[way][said];
  }
  EXPECT_EQ(kinds["agent"].size(), std::variant_size_v<core::AgentMessage> + 1);
  EXPECT_EQ(kinds["controller"].size(), std::variant_size_v<core::ControllerMessage>);
  EXPECT_EQ(kinds["node"].size(), std::variant_size_v<NodeMessage>);
  EXPECT_EQ(kinds["order"].size(), std::variant_size_v<NodeOrder>);
}

}  // namespace
}  // namespace kintsugi::wire
