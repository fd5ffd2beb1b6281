// The codec brings back what went in, and refuses whatever is out of range.
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "tests/unit/wire/equal.h"
#include "tests/unit/wire/random_values.h"
#include "tests/unit/wire/schema.h"

namespace kintsugi::wire {
namespace {

constexpr size_t kAgentKinds = std::variant_size_v<core::AgentMessage>;
constexpr size_t kControllerKinds = std::variant_size_v<core::ControllerMessage>;

TEST(Codec, BringsBackEveryMessageOfAnAgent) {
  RandomValues random(1);
  for (int round = 0; round < 3000; ++round) {
    const core::Header header = random.Any<core::Header>();
    const core::AgentMessage message = random.Alternative<core::AgentMessage>(static_cast<size_t>(round) % kAgentKinds);
    ASSERT_EQ(message.index(), static_cast<size_t>(round) % kAgentKinds);
    const auto frame = DecodeFromAgent("job", Encode("job", header, message));
    ASSERT_TRUE(frame.ok()) << "kind " << message.index() << ": " << frame.status().ToString();
    EXPECT_TRUE(Equal(frame->header, header));
    EXPECT_TRUE(Equal(std::get<core::AgentMessage>(frame->message), message)) << "kind " << message.index();
  }
}

TEST(Codec, BringsBackEveryMessageOfAController) {
  RandomValues random(2);
  for (int round = 0; round < 3000; ++round) {
    const core::Header header = random.Any<core::Header>();
    const core::ControllerMessage message =
        random.Alternative<core::ControllerMessage>(static_cast<size_t>(round) % kControllerKinds);
    ASSERT_EQ(message.index(), static_cast<size_t>(round) % kControllerKinds);
    const auto frame = DecodeFromController("job", Encode("job", header, message));
    ASSERT_TRUE(frame.ok()) << "kind " << message.index() << ": " << frame.status().ToString();
    EXPECT_TRUE(Equal(frame->header, header));
    EXPECT_TRUE(Equal(frame->message, message)) << "kind " << message.index();
  }
}

TEST(Codec, BringsBackReportsWithEveryBitOfTheLoss) {
  RandomValues random(3);
  for (int round = 0; round < 1000; ++round) {
    const RankReport report = random.Any<RankReport>();
    const auto frame = DecodeFromAgent("job", Encode("job", random.Any<core::Header>(), report));
    ASSERT_TRUE(frame.ok());
    EXPECT_TRUE(Equal(std::get<RankReport>(frame->message), report));
  }
}

// The clock of a host says how long that host has been up.
TEST(Codec, TellsInstantsByTheReadersClock) {
  const auto told = [](Duration sender_ahead, Duration age, TimePoint now) {
    const TimePoint sent = now + sender_ahead;
    core::FaultReport fault;
    fault.since = sent - age;
    const auto frame = DecodeFromAgent("job", Encode("job", {}, core::AgentMessage(fault), sent), now);
    return std::get<core::FaultReport>(std::get<core::AgentMessage>(frame.value().message)).since;
  };
  const TimePoint now(std::chrono::hours(100));
  EXPECT_EQ(told(Duration(), std::chrono::seconds(3), now), now - std::chrono::seconds(3));
  EXPECT_EQ(told(std::chrono::hours(90), std::chrono::seconds(3), now), now - std::chrono::seconds(3));
  EXPECT_EQ(told(std::chrono::hours(-90), std::chrono::seconds(3), now), now - std::chrono::seconds(3));
  EXPECT_EQ(told(Duration(), -std::chrono::seconds(3), now), now) << "nothing was before it happened";
}

TEST(Codec, SurvivesInstantsAtBothEnds) {
  const TimePoint first(Duration(1)), last(Duration::max());
  core::FaultReport fault;
  fault.since = first;
  const std::string bytes = Encode("job", {}, core::AgentMessage(fault), last);
  const auto since = [&](TimePoint now) {
    return std::get<core::FaultReport>(std::get<core::AgentMessage>(DecodeFromAgent("job", bytes, now)->message)).since;
  };
  EXPECT_EQ(since(last), last - Duration(kYear));
  EXPECT_EQ(since(TimePoint(std::chrono::minutes(5))), first) << "its host has just come up";
  EXPECT_EQ(since({}), first);
}

TEST(Codec, SendsNothingThatItsReaderWouldRefuse) {
  core::Header header;
  header.rank = Rank(-1);
  EXPECT_THROW(Encode("job", header, core::AgentMessage(core::Ready())), CheckFailure);
  header.rank = Rank(0);
  SnapshotOrder order;
  order.step = order.keep = Step(3);  // it would drop what it makes
  EXPECT_THROW(Encode("job", header, core::ControllerMessage(order)), CheckFailure);
}

TEST(Codec, RefusesAnotherJobAndNamesBoth) {
  RandomValues random(4);
  const Status status =
      DecodeFromAgent("mine", Encode("theirs", random.Any<core::Header>(), random.Alternative<core::AgentMessage>(2)))
          .status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'theirs'"), std::string::npos);
  EXPECT_NE(status.message().find("'mine'"), std::string::npos);
}

TEST(Codec, RefusesAMessageOfTheOtherDirection) {
  RandomValues random(5);
  for (size_t kind = 0; kind < kControllerKinds; ++kind)
    EXPECT_EQ(DecodeFromAgent(
                  "job", Encode("job", random.Any<core::Header>(), random.Alternative<core::ControllerMessage>(kind)))
                  .status()
                  .code(),
              StatusCode::kInvalidArgument);
  for (size_t kind = 0; kind < kAgentKinds; ++kind)
    EXPECT_EQ(DecodeFromController(
                  "job", Encode("job", random.Any<core::Header>(), random.Alternative<core::AgentMessage>(kind)))
                  .status()
                  .code(),
              StatusCode::kInvalidArgument);
}

TEST(Codec, RefusesAMessageOfBothDirections) {
  RandomValues random(8);
  const core::Header header = random.Any<core::Header>();
  for (size_t kind = 0; kind < kAgentKinds; ++kind) {
    // Protobuf takes two messages in a row for one: the fields of both.
    const std::string both = Encode("job", header, random.Alternative<core::AgentMessage>(kind)) +
                             Encode("job", header, random.Alternative<core::ControllerMessage>(0));
    for (const Status& status : {DecodeFromAgent("job", both).status(), DecodeFromController("job", both).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find("other direction"), std::string::npos) << status.ToString();
    }
  }
}

// An otherwise good envelope in which one field has what no peer of this version says.
void ExpectRefused(const std::string& word, const std::string& text) {
  const std::string bytes = Schema::Get().Bytes("Envelope", "job: 'job' " + text);
  Status status = DecodeFromAgent("job", bytes).status();
  if (status.message().find("other direction") != std::string::npos)
    status = DecodeFromController("job", bytes).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
  EXPECT_EQ(status.message().find("control message: " + word + " "), 0u) << status.ToString();
}

TEST(Codec, RefusesUnknownValuesAndNamesTheField) {
  ExpectRefused("rank", "header_rank: -1 resumed {}");
  ExpectRefused("standing", "join { standing: 4 }");
  ExpectRefused("dtype", "ready { registry_tensors { dtype: 99 } }");
  ExpectRefused("object kind", "ready { registry_objects { kind: 2 } }");
  ExpectRefused("rank", "ready { layouts { ranks: -7 } }");
  ExpectRefused("fault kind", "fault { kind: 14 }");
  ExpectRefused("instant", "fault { since_ns: -1 }");
  ExpectRefused("step", "fault { suspect_from: 0x1000000000000000 }");
  ExpectRefused("gate state", "locked { state: 4 }");
  ExpectRefused("gate state", "parked { state: 4 }");
  ExpectRefused("step", "parked { step: 0x1000000000000000 }");
  ExpectRefused("step", "finished { step: 0xffffffffffffffff }");
  ExpectRefused("step", "beat { place_step: 0xffffffffffffffff }");
  ExpectRefused("train phase", "beat { place_phase: 8 }");
  ExpectRefused("activity", "beat { place_activity: 7 }");
  ExpectRefused("phase", "done { phase: 13 }");
  ExpectRefused("status code", "done { code: 1000 }");
  ExpectRefused("rank", "snapshot_copied { owner: -1 }");
  ExpectRefused("cost", "snapshot_copied { cost_ns: -1 }");
  ExpectRefused("cost", "snapshot_copied { cost_ns: 0x7fffffffffffffff }");
  ExpectRefused("phase", "order { phase: 13 }");
  ExpectRefused("rung", "order { rung: 12 }");
  ExpectRefused("limit", "order { limit_ns: -1 }");
  ExpectRefused("limit", "order { limit_ns: 0x7fffffffffffffff }");
  ExpectRefused("rank", "order { partners: -1 }");
  ExpectRefused("rank", "order { moves { destination: -1 } }");
  ExpectRefused("rank", "order { moves { sources: -1 } }");
  ExpectRefused("rank", "order { moves { snapshot_of_plus_one: -1 } }");
  ExpectRefused("rank", "order { moves { snapshot_of_plus_one: 0x80000000 } }");
  ExpectRefused("rank", "order { entries { holders: -1 } }");
  ExpectRefused("rank", "order { entries { objects_of: -1 } }");
  ExpectRefused("step", "stop { step: 0xffffffffffffffff }");
  ExpectRefused("limit", "stop { park_limit_ns: -1 }");
  ExpectRefused("status code", "store_answer { code: 1000 }");
  ExpectRefused("rank", "snapshot_at { step: 2 partner: -2 }");
  ExpectRefused("snapshot", "snapshot_at { step: 2 keep: 2 }");
  ExpectRefused("snapshot", "snapshot_at { keep: 2 }");
}

TEST(Codec, RefusalsNameMessageAndField) {
  const auto why = [](const char* text) {
    return DecodeFromAgent("job", Schema::Get().Bytes("Envelope", std::string("job: 'job' ") + text))
        .status()
        .message();
  };
  EXPECT_EQ(why("fault { kind: 14 }"), "control message: fault kind 14 is out of its range, in core::FaultReport.kind");
  EXPECT_EQ(why("beat { place_phase: 8 }"), "control message: train phase 8 is out of its range, in core::Beat.phase");
  EXPECT_EQ(why("ready { registry_tensors { dtype: 99 } }"),
            "control message: dtype 99 is out of its range, in TensorSummary.dtype");
}

// What a struct has where nobody said anything is not what the wire has: there it is zero.
TEST(Codec, TakesWhatIsMissingForZero) {
  const auto said = [](const char* text) {
    return DecodeFromController("job", Schema::Get().Bytes("Envelope", std::string("job: 'job' ") + text))
        .value()
        .message;
  };
  EXPECT_FALSE(std::get<core::JoinReply>(said("joined {}")).accepted);
  const auto stop = std::get<core::StopOrder>(said("stop {}"));
  EXPECT_FALSE(stop.step_exists);
  EXPECT_EQ(stop.stop_limit, Duration());
  EXPECT_EQ(stop.park_limit, Duration());
  const auto order = std::get<core::PhaseOrder>(said("order { moves {} }"));
  EXPECT_TRUE(order.moves_latest);
  EXPECT_EQ(order.phase, core::Phase::kRunning);
  EXPECT_EQ(order.moves.at(0).snapshot_of, Rank(-1));
  EXPECT_EQ(std::get<SnapshotOrder>(said("snapshot_at { step: 1 }")).partner, Rank(0));
}

// Whatever is kept of an optional without its flag is nobody's.
TEST(Codec, AnOptionalIsThereWhereItsFlagSaysSo) {
  const auto range = [](const char* text) {
    const std::string bytes =
        Schema::Get().Bytes("Envelope", std::string("job: 'job' ready { registry_tensors { ") + text + " } }");
    const AgentFrame frame = DecodeFromAgent("job", bytes).value();
    return std::get<core::Ready>(std::get<core::AgentMessage>(frame.message)).registry.tensors.at(0).flattened_range;
  };
  EXPECT_EQ(range("flattened_range_start: 3"), std::nullopt);
  EXPECT_EQ(range("has_flattened_range: true"), (FlatRange{0, 0}));
  EXPECT_EQ(range("has_flattened_range: true flattened_range_stop: 4"), (FlatRange{0, 4}));
}

// That what was decoded can be encoded again and gives the same message: no value is out of what the codec itself takes.
void ExpectInRange(const std::string& bytes) {
  if (const auto frame = DecodeFromAgent("job", bytes); frame.ok()) {
    const std::string again =
        std::visit([&](const auto& m) { return Encode("job", frame->header, m); }, frame->message);
    ASSERT_TRUE(DecodeFromAgent("job", again).ok());
  }
  if (const auto frame = DecodeFromController("job", bytes); frame.ok()) {
    ASSERT_TRUE(DecodeFromController("job", Encode("job", frame->header, frame->message)).ok());
  }
}

std::string AnyFrame(RandomValues& random, uint64_t round) {
  const uint64_t kind = round % (kAgentKinds + kControllerKinds + 1);
  if (kind < kAgentKinds)
    return Encode("job", random.Any<core::Header>(), random.Alternative<core::AgentMessage>(kind));
  if (kind < kAgentKinds + kControllerKinds)
    return Encode("job", random.Any<core::Header>(), random.Alternative<core::ControllerMessage>(kind - kAgentKinds));
  return Encode("job", random.Any<core::Header>(), random.Any<RankReport>());
}

TEST(Codec, ATruncatedFrameIsRefusedOrAShorterMessage) {
  RandomValues random(6);
  for (uint64_t round = 0; round < 300; ++round) {
    const std::string bytes = AnyFrame(random, round);
    for (size_t size = 0; size < bytes.size(); ++size) ExpectInRange(bytes.substr(0, size));
  }
}

TEST(Codec, AHundredThousandMutationsGiveNoCrashAndNoValueOutOfRange) {
  RandomValues random(7);
  uint64_t accepted = 0;
  for (uint64_t round = 0; round < 100'000; ++round) {
    std::string bytes = AnyFrame(random, round);
    for (uint64_t i = 1 + random.Below(4); i > 0; --i) {
      const size_t at = random.Below(bytes.size());
      switch (random.Below(3)) {
        case 0:
          bytes[at] = static_cast<char>(random.Below(256));
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Below(8)));
          break;
        default:
          bytes.insert(at, 1, static_cast<char>(random.Below(256)));
      }
    }
    ASSERT_NO_FATAL_FAILURE(ExpectInRange(bytes)) << "round " << round;
    accepted += DecodeFromAgent("job", bytes).ok() || DecodeFromController("job", bytes).ok();
  }
  EXPECT_GT(accepted, 1000u) << "mutations that never pass test the parser only";
}

}  // namespace
}  // namespace kintsugi::wire
