// Every event can be written as words and read back; what is no event is refused.
#include "runtime/journal/text.h"

#include <gtest/gtest.h>

#include "tests/unit/journal/random_inputs.h"

namespace kintsugi::journal {
namespace {

constexpr Term kTerm{1, 1};
constexpr TimePoint kOrigin{std::chrono::seconds(1000)};

TEST(JournalText, BringsBackEventsOfEveryKind) {
  RandomInputs random(1);
  for (size_t round = 0; round < 4000; ++round) {
    const size_t agent_kind = round / kEventKinds % std::variant_size_v<core::AgentMessage>;
    const core::ControllerEvent event = random.Event(round % kEventKinds, agent_kind);
    const std::string text = WriteEvent(event, kTerm, kOrigin);
    const Result<core::ControllerEvent> read = ReadEvent(text, kTerm, kOrigin);
    ASSERT_TRUE(read.ok()) << text << ": " << read.status().ToString();
    ASSERT_TRUE(SameEvent(*read, event)) << text;
    for (const char c : text) ASSERT_TRUE(c >= ' ' && c <= '~') << text;
  }
}

TEST(JournalText, BringsBackInputsThatAreNoEvents) {
  const Input injections{.what = ArmedInjections{Rank(3), {"1 kill:3@5:update", "", "a \"quoted\" one, [with] (all)"}}};
  const std::string text = WriteInput(injections, kTerm, kOrigin);
  const Result<Input> read = ReadInput(text, kTerm, kOrigin);
  ASSERT_TRUE(read.ok()) << text << ": " << read.status().ToString();
  EXPECT_TRUE(SameInput(*read, injections)) << text;
  EXPECT_TRUE(std::holds_alternative<Start>(ReadInput("start", kTerm, kOrigin).value().what));
}

TEST(JournalText, ReadsAsAPersonWouldWriteIt) {
  EXPECT_EQ(WriteEvent(core::Tick{}, kTerm, kOrigin), "tick");
  EXPECT_EQ(WriteEvent(core::FromAgent{{kTerm, Generation(3), Rank(1), Incarnation(2)},
                                       core::Parked{core::GateState::kTorn, Step(7), true}},
                       kTerm, kOrigin),
            "rank 1 inc 2 gen 3: parked state=torn step=7");
  EXPECT_EQ(WriteEvent(core::ProcessExited{Rank(1), Incarnation(2), "killed by SIGKILL",
                                           kOrigin + std::chrono::microseconds(1500)},
                       kTerm, kOrigin),
            "process_exited rank=1 incarnation=2 cause=\"killed by SIGKILL\" since=1.5ms");
}

TEST(JournalText, MutatedTextsAreReadOrRefused) {
  RandomInputs random(2);
  size_t refused = 0;
  for (size_t round = 0; round < 20000; ++round) {
    std::string text = WriteEvent(random.Event(round % kEventKinds, round % 15), kTerm, kOrigin);
    for (uint64_t n = 1 + random.Below(3); n > 0 && !text.empty(); --n) {
      const size_t at = random.Below(text.size());
      constexpr std::string_view kChars = "()[],:=\"\\ x0-9msnone";
      if (random.Below(2))
        text.erase(at, 1 + random.Below(3));
      else
        text[at] = kChars[random.Below(kChars.size())];
    }
    const Result<core::ControllerEvent> read = ReadEvent(text, kTerm, kOrigin);
    refused += !read.ok();
    // What was read is an event: it can be written, and then read again as the same.
    if (!read.ok()) continue;
    const std::string again = WriteEvent(*read, kTerm, kOrigin);
    const Result<core::ControllerEvent> twice = ReadEvent(again, kTerm, kOrigin);
    ASSERT_TRUE(twice.ok()) << text << " -> " << again << ": " << twice.status().ToString();
    ASSERT_TRUE(SameEvent(*read, *twice)) << text << " -> " << again;
  }
  EXPECT_GT(refused, 5000u);
}

TEST(JournalText, RefusalsNameTheField) {
  const auto why = [](const char* text) { return ReadEvent(text, kTerm, kOrigin).status().message(); };
  EXPECT_NE(why("rank 1 inc 2 gen 3: parked stage=torn").find("'stage'"), std::string::npos);
  EXPECT_NE(why("rank 1 inc 2 gen 3: parked state=broken").find("'broken'"), std::string::npos);
  EXPECT_NE(why("rank 1 inc 2 gen 3: parked step=1 step=2").find("twice"), std::string::npos);
  EXPECT_NE(why("rank one inc 2 gen 3: parked").find("rank 1 inc 2 gen 3"), std::string::npos);
  EXPECT_NE(why("process_left rank=1").find("'process_left'"), std::string::npos);
}

TEST(JournalText, PoliciesAreReadAsAWhole) {
  core::Policy policy;
  policy.world_size = 12;
  policy.silence = std::chrono::nanoseconds(1'234'567'891);
  policy.can_spawn = false;
  policy.hang_factor = 0;
  EXPECT_EQ(WriteFields(policy), "world_size=12 silence=1234.567891ms hang_factor=0 can_spawn=no");
  EXPECT_EQ(WriteFields(ReadPolicy(WriteFields(policy)).value()), WriteFields(policy));
  EXPECT_FALSE(ReadPolicy("world_size=0").ok());
  EXPECT_FALSE(ReadPolicy("world=2").ok());
  EXPECT_EQ(ReadPolicy("max_respawns=0", policy).value().world_size, 12);
}

}  // namespace
}  // namespace kintsugi::journal
