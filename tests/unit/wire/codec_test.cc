// The codec brings back what went in, and refuses whatever is out of range.
#include <gtest/gtest.h>

#include "runtime/wire/control.pb.h"
#include "tests/unit/wire/equal.h"
#include "tests/unit/wire/random_messages.h"

namespace kintsugi::wire {
namespace {

constexpr size_t kAgentKinds = std::variant_size_v<core::AgentMessage>;
constexpr size_t kControllerKinds = std::variant_size_v<core::ControllerMessage>;

TEST(Codec, BringsBackEveryMessageOfAnAgent) {
  RandomMessages random(1);
  for (int round = 0; round < 3000; ++round) {
    const core::Header header = random.Header();
    const core::AgentMessage message = random.Agent(static_cast<size_t>(round) % kAgentKinds);
    ASSERT_EQ(message.index(), static_cast<size_t>(round) % kAgentKinds);
    const auto frame = DecodeFromAgent("job", Encode("job", header, message));
    ASSERT_TRUE(frame.ok()) << "kind " << message.index() << ": " << frame.status().ToString();
    EXPECT_TRUE(Equal(frame->header, header));
    EXPECT_TRUE(SameMessage(std::get<core::AgentMessage>(frame->message), message)) << "kind " << message.index();
  }
}

TEST(Codec, BringsBackEveryMessageOfAController) {
  RandomMessages random(2);
  for (int round = 0; round < 3000; ++round) {
    const core::Header header = random.Header();
    const core::ControllerMessage message = random.Controller(static_cast<size_t>(round) % kControllerKinds);
    ASSERT_EQ(message.index(), static_cast<size_t>(round) % kControllerKinds);
    const auto frame = DecodeFromController("job", Encode("job", header, message));
    ASSERT_TRUE(frame.ok()) << "kind " << message.index() << ": " << frame.status().ToString();
    EXPECT_TRUE(Equal(frame->header, header));
    EXPECT_TRUE(SameMessage(frame->message, message)) << "kind " << message.index();
  }
}

TEST(Codec, BringsBackReportsWithEveryBitOfTheLoss) {
  RandomMessages random(3);
  for (int round = 0; round < 1000; ++round) {
    const RankReport report = random.Report();
    const auto frame = DecodeFromAgent("job", Encode("job", random.Header(), report));
    ASSERT_TRUE(frame.ok());
    EXPECT_TRUE(Equal(std::get<RankReport>(frame->message), report));
  }
}

TEST(Codec, RefusesAnotherJobAndNamesBoth) {
  RandomMessages random(4);
  const Status status = DecodeFromAgent("mine", Encode("theirs", random.Header(), random.Agent(2))).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'theirs'"), std::string::npos);
  EXPECT_NE(status.message().find("'mine'"), std::string::npos);
}

TEST(Codec, RefusesAMessageOfTheOtherDirection) {
  RandomMessages random(5);
  for (size_t kind = 0; kind < kControllerKinds; ++kind)
    EXPECT_EQ(DecodeFromAgent("job", Encode("job", random.Header(), random.Controller(kind))).status().code(),
              StatusCode::kInvalidArgument);
  for (size_t kind = 0; kind < kAgentKinds; ++kind)
    EXPECT_EQ(DecodeFromController("job", Encode("job", random.Header(), random.Agent(kind))).status().code(),
              StatusCode::kInvalidArgument);
}

TEST(Codec, RefusesAMessageOfBothDirections) {
  RandomMessages random(8);
  const core::Header header = random.Header();
  for (size_t kind = 0; kind < kAgentKinds; ++kind) {
    // Protobuf takes two messages in a row for one: the fields of both.
    const std::string both = Encode("job", header, random.Agent(kind)) + Encode("job", header, random.Controller(0));
    for (const Status& status : {DecodeFromAgent("job", both).status(), DecodeFromController("job", both).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find("other direction"), std::string::npos) << status.ToString();
    }
  }
}

// One field of an otherwise good envelope is set to what no peer of this version says.
template <typename Change>
void ExpectRefused(const char* word, Change change) {
  pb::Envelope envelope;
  envelope.set_job("job");
  change(&envelope);
  const std::string bytes = envelope.SerializeAsString();
  const Status status = envelope.agent_case() != pb::Envelope::AGENT_NOT_SET
                            ? DecodeFromAgent("job", bytes).status()
                            : DecodeFromController("job", bytes).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << word;
  EXPECT_NE(status.message().find(word), std::string::npos) << status.ToString();
}

TEST(Codec, RefusesUnknownValuesAndNamesTheField) {
  using pb::Envelope;
  ExpectRefused("rank", [](Envelope* e) { e->set_rank(-1), e->mutable_resumed(); });
  ExpectRefused("dtype", [](Envelope* e) { e->mutable_ready()->add_tensors()->set_dtype(99); });
  ExpectRefused("object kind", [](Envelope* e) { e->mutable_ready()->add_objects()->set_kind(2); });
  ExpectRefused("rank", [](Envelope* e) { e->mutable_ready()->add_groups()->add_ranks(-7); });
  ExpectRefused("fault kind", [](Envelope* e) { e->mutable_fault_report()->set_kind(13); });
  ExpectRefused("instant", [](Envelope* e) { e->mutable_fault_report()->set_since_ns(-1); });
  ExpectRefused("gate state", [](Envelope* e) { e->mutable_lock_reply()->set_state(4); });
  ExpectRefused("gate state", [](Envelope* e) { e->mutable_parked()->set_state(4); });
  ExpectRefused("step", [](Envelope* e) { e->mutable_parked()->set_step(1ull << 60); });
  ExpectRefused("step", [](Envelope* e) { e->mutable_finished()->set_step(~0ull); });
  ExpectRefused("step", [](Envelope* e) { e->mutable_beat()->set_step(~0ull); });
  ExpectRefused("train phase", [](Envelope* e) { e->mutable_beat()->set_phase(8); });
  ExpectRefused("activity", [](Envelope* e) { e->mutable_beat()->set_activity(kActivityNames.size()); });
  ExpectRefused("phase", [](Envelope* e) { e->mutable_phase_done()->set_phase(core::kPhaseCount); });
  ExpectRefused("status code", [](Envelope* e) { e->mutable_phase_done()->set_code(1000); });
  ExpectRefused("phase", [](Envelope* e) { e->mutable_phase_order()->set_phase(core::kPhaseCount); });
  ExpectRefused("rung",
                [](Envelope* e) { e->mutable_phase_order()->set_rung(static_cast<uint32_t>(Rung::kExit) + 1); });
  ExpectRefused("limit", [](Envelope* e) { e->mutable_phase_order()->set_limit_ns(-1); });
  ExpectRefused("limit", [](Envelope* e) { e->mutable_phase_order()->set_limit_ns(INT64_MAX); });
  ExpectRefused("rank", [](Envelope* e) { e->mutable_phase_order()->add_partners(-1); });
  ExpectRefused("rank", [](Envelope* e) { e->mutable_phase_order()->add_moves()->set_destination(-1); });
  ExpectRefused("rank", [](Envelope* e) { e->mutable_phase_order()->add_moves()->add_sources(-1); });
  ExpectRefused("rank", [](Envelope* e) { e->mutable_phase_order()->add_entries()->add_holders(-1); });
  ExpectRefused("rank", [](Envelope* e) { e->mutable_phase_order()->add_entries()->add_objects_of(-1); });
  ExpectRefused("step", [](Envelope* e) { e->mutable_stop_order()->set_step(~0ull); });
  ExpectRefused("status code", [](Envelope* e) { e->mutable_store_reply()->set_code(1000); });
}

// That what was decoded can be encoded again and gives the same message: no value is out of what the codec itself takes.
void ExpectInRange(const std::string& bytes) {
  if (const auto frame = DecodeFromAgent("job", bytes); frame.ok()) {
    const std::string again = std::visit([&](const auto& m) { return Encode("job", frame->header, m); }, frame->message);
    ASSERT_TRUE(DecodeFromAgent("job", again).ok());
  }
  if (const auto frame = DecodeFromController("job", bytes); frame.ok()) {
    ASSERT_TRUE(DecodeFromController("job", Encode("job", frame->header, frame->message)).ok());
  }
}

std::string AnyFrame(RandomMessages& random, uint64_t round) {
  const uint64_t kind = round % (kAgentKinds + kControllerKinds + 1);
  if (kind < kAgentKinds) return Encode("job", random.Header(), random.Agent(kind));
  if (kind < kAgentKinds + kControllerKinds)
    return Encode("job", random.Header(), random.Controller(kind - kAgentKinds));
  return Encode("job", random.Header(), random.Report());
}

TEST(Codec, ATruncatedFrameIsRefusedOrAShorterMessage) {
  RandomMessages random(6);
  for (uint64_t round = 0; round < 300; ++round) {
    const std::string bytes = AnyFrame(random, round);
    for (size_t size = 0; size < bytes.size(); ++size) ExpectInRange(bytes.substr(0, size));
  }
}

TEST(Codec, AHundredThousandMutationsGiveNoCrashAndNoValueOutOfRange) {
  RandomMessages random(7);
  uint64_t accepted = 0;
  for (uint64_t round = 0; round < 100'000; ++round) {
    std::string bytes = AnyFrame(random, round);
    for (uint64_t i = 1 + random.Below(4); i > 0; --i) {
      const size_t at = random.Below(bytes.size());
      switch (random.Below(3)) {
        case 0: bytes[at] = static_cast<char>(random.Below(256)); break;
        case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Below(8))); break;
        default: bytes.insert(at, 1, static_cast<char>(random.Below(256)));
      }
    }
    ASSERT_NO_FATAL_FAILURE(ExpectInRange(bytes)) << "round " << round;
    accepted += DecodeFromAgent("job", bytes).ok() || DecodeFromController("job", bytes).ok();
  }
  EXPECT_GT(accepted, 1000u) << "mutations that never pass test the parser only";
}

}  // namespace
}  // namespace kintsugi::wire
