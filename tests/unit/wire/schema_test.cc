// The published schema is what the lists say, and protobuf's own code makes of our frames what we do.
//
//   KINTSUGI_GOLDEN=rewrite build/release/tests/wire_schema_test     writes it from the lists
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "runtime/journal/records.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/envelope.h"
#include "runtime/wire/node_codec.h"
#include "tests/unit/wire/equal.h"
#include "tests/unit/wire/random_values.h"
#include "tests/unit/wire/schema.h"
#include "tests/unit/wire/schema_text.h"

namespace kintsugi::wire {
namespace {

constexpr Term kTerm{7, 3};

// ---- the text ------------------------------------------------------------------------------------------------------

template <typename... T>
std::variant<T..., RankReport> WithReport(std::variant<T...>*);
using AgentSays = decltype(WithReport(static_cast<core::AgentMessage*>(nullptr)));

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Head(const char* what, const char* list, const char* package) {
  return std::string("// ") + what + "\n// Written from the list " + list +
         " by tests/unit/wire/schema_test.cc: change the list, not this. Which values are in\n"
         "// range stands there too. Texts are `bytes`: they come from exceptions and file systems.\n"
         "syntax = \"proto3\";\n\npackage " + package + ";\n";
}

// A number that is taken for something else would be read wrongly by one that knows the schema before.
void ExpectNoOtherType(const KnownNumbers& before, const KnownNumbers& now) {
  for (const auto& [message, numbers] : now.types) {
    for (const auto& [number, type] : numbers) {
      EXPECT_FALSE(before.reserved.contains(message) && before.reserved.at(message).contains(number))
          << message << ": " << number << " is of a field that is gone: take a new one";
      if (!before.types.contains(message) || !before.types.at(message).contains(number)) continue;
      EXPECT_EQ(before.types.at(message).at(number), type)
          << message << ": " << number << " is known as another type: take a new one";
    }
  }
}

void ExpectWritten(const std::string& path, const SchemaText& schema, const std::string& head) {
  const std::string there = ReadFile(path);
  ASSERT_FALSE(there.empty()) << path;
  const KnownNumbers known = ReadNumbers(there);
  const std::string text = schema.Text(head, known);
  ExpectNoOtherType(known, ReadNumbers(text));
  const char* golden = std::getenv("KINTSUGI_GOLDEN");
  if (golden && std::string(golden) == "rewrite" && !testing::Test::HasFailure()) {
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  EXPECT_EQ(there, text) << path << " is not what the lists say: KINTSUGI_GOLDEN=rewrite writes it";
}

TEST(WireSchema, OfAgentsIsWhatTheListSays) {
  SchemaText schema;
  schema.Envelope<AgentSeal, AgentSays, core::ControllerMessage>("Envelope", {"agent", "controller"});
  ExpectWritten(KINTSUGI_WIRE "/control.proto", schema,
                Head("What agents and the controller say to each other, one Envelope per frame.", "fields.h", "kintsugi.wire.pb"));
}

TEST(WireSchema, OfNodesIsWhatTheListSays) {
  SchemaText schema;
  schema.Envelope<NodeSeal, NodeMessage, NodeOrder>("NodeEnvelope", {"node", "controller"});
  ExpectWritten(KINTSUGI_WIRE "/node.proto", schema,
                Head("What launchers tell each other, one NodeEnvelope per frame.", "node_fields.h", "kintsugi.wire.pb"));
}

TEST(WireSchema, OfAJournalIsWhatTheListSays) {
  SchemaText schema;
  schema.Envelope<journal::InputSeal, journal::InputBody>("Input", {"what"});
  schema.Envelope<NoSeal, journal::RecordBody>("Record", {"record"});
  ExpectWritten(KINTSUGI_WIRE "/../journal/journal.proto", schema,
                Head("What a journal's frames hold: a Record each; `input` is the bytes of an Input.",
                     "runtime/journal/records.h", "kintsugi.journal.pb"));
}

TEST(WireSchema, RemembersTheNumbersOfFieldsThatAreGone) {
  SchemaText schema;
  schema.Envelope<NodeSeal, NodeMessage, NodeOrder>("NodeEnvelope", {"node", "controller"});
  const KnownNumbers known =
      ReadNumbers("message Page {\n  reserved 9, 11;\n  int32 rank = 1;\n  repeated bytes names = 8;  // once\n}\n");
  const std::string text = schema.Text("", known);
  EXPECT_NE(text.find("message Page {\n  reserved 8, 9, 11;\n  int32 rank = 1;\n"), std::string::npos) << text;
  EXPECT_EQ(ReadNumbers(text).reserved.at("Page"), (std::set<uint32_t>{8, 9, 11}));
}

// ---- the bytes -----------------------------------------------------------------------------------------------------

struct Frames {
  RandomValues random;

  // A frame of any kind, and what its envelope is called.
  std::pair<const char*, std::string> Next(size_t round) {
    const auto kind = [&](size_t kinds) { return round / 5 % kinds; };
    switch (round % 5) {
      case 0: return {"Envelope", Encode("job", random.Any<core::Header>(), Some<core::AgentMessage>(kind))};
      case 1: return {"Envelope", Encode("job", random.Any<core::Header>(), Some<core::ControllerMessage>(kind))};
      case 2: return {"Envelope", Encode("job", random.Any<core::Header>(), random.Any<RankReport>())};
      case 3: return {"NodeEnvelope", Encode("job", kTerm, Some<NodeMessage>(kind))};
      default: return {"NodeEnvelope", Encode("job", kTerm, Some<NodeOrder>(kind))};
    }
  }
  template <typename Variant, typename Kind>
  Variant Some(Kind kind) {
    return random.Alternative<Variant>(kind(std::variant_size_v<Variant>));
  }
};

TEST(WireSchema, ProtobufWritesTheSameBytes) {
  Frames frames{RandomValues(1)};
  for (size_t round = 0; round < 3000; ++round) {
    const auto [envelope, bytes] = frames.Next(round);
    const auto parsed = Schema::Get().Parse(envelope, bytes);
    ASSERT_TRUE(parsed) << round;
    ASSERT_FALSE(Schema::HasUnknownFields(*parsed)) << parsed->DebugString();
    ASSERT_EQ(Schema::BytesOf(*parsed), bytes) << parsed->DebugString();
  }
}

template <typename Frame>
bool IsTakenAs(const Result<Frame>& ours, const Result<Frame>& theirs) {
  return ours.ok() && theirs.ok() && Equal(*ours, *theirs);
}

// What protobuf takes for an envelope we do, and see the same in it; what it does not is kDataLoss here.
TEST(WireSchema, ProtobufReadsMutatedFramesAsWeDo) {
  Frames frames{RandomValues(2)};
  size_t taken = 0, lost = 0;
  for (size_t round = 0; round < 60'000; ++round) {
    const auto next = frames.Next(round);
    const std::string envelope = next.first;
    std::string bytes = next.second;
    RandomValues& random = frames.random;
    if (random.Below(4) == 0) bytes += frames.Next(round + 5 * random.Below(2)).second;  // a message in two parts
    for (uint64_t i = random.Below(4); i > 0; --i) {
      const size_t at = random.Below(bytes.size());
      switch (random.Below(4)) {
        case 0: bytes[at] = static_cast<char>(random.Below(256)); break;
        case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Below(8))); break;
        case 2: bytes.insert(at, 1, static_cast<char>(random.Below(256))); break;
        default: bytes.erase(at, 1 + random.Below(3)); bytes += 'x';
      }
    }
    const auto parsed = Schema::Get().Parse(envelope, bytes);
    const auto compare = [&](auto decode) {
      const auto ours = decode(bytes);
      ASSERT_EQ(ours.status().code() != StatusCode::kDataLoss, parsed != nullptr) << "round " << round;
      if (!parsed || !ours.ok()) return;
      ASSERT_TRUE(IsTakenAs(ours, decode(Schema::BytesOf(*parsed)))) << parsed->DebugString();
      ++taken;
    };
    lost += parsed == nullptr;
    if (envelope == "Envelope") {
      ASSERT_NO_FATAL_FAILURE(compare([](const std::string& b) { return DecodeFromAgent("job", b); }));
      ASSERT_NO_FATAL_FAILURE(compare([](const std::string& b) { return DecodeFromController("job", b); }));
    } else {
      ASSERT_NO_FATAL_FAILURE(compare([](const std::string& b) { return DecodeFromNode("job", b); }));
      ASSERT_NO_FATAL_FAILURE(compare([](const std::string& b) { return DecodeToNode("job", b); }));
    }
  }
  EXPECT_GT(taken, 10'000u) << "mutations that never pass test the parsers only";
  EXPECT_GT(lost, 5'000u);
}

}  // namespace
}  // namespace kintsugi::wire
