// A journal brings back what went in; damage is found, a torn end costs no more than what was torn.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/journal/files.h"
#include "runtime/journal/reader.h"
#include "runtime/journal/text.h"
#include "tests/unit/journal/random_inputs.h"

namespace kintsugi::journal {
namespace {

struct Written {
  std::string bytes;
  std::vector<Input> inputs;
  std::vector<size_t> ends;      // of each frame, in bytes
  std::vector<size_t> complete;  // inputs that are whole by then
};

Preamble SomePreamble() {
  Preamble preamble{.build = "test", .term = {3, 9}};
  preamble.policy.world_size = kWorld;
  preamble.policy.save_directory = "a folder, \"quoted\" \\ \x01";
  preamble.policy.hang_factor = 1.0 / 3 + 2;
  return preamble;
}

Written Write(uint64_t seed, int count) {
  RandomInputs random(seed);
  Encoder encoder;
  FrameWriter frames;
  Written written{std::string(kMagic), {random.Begin()}, {}, {}};
  const auto put = [&](const std::string& payload) {
    if (payload.empty()) return;
    frames.Append(payload, &written.bytes);
    written.ends.push_back(written.bytes.size());
    written.complete.push_back(written.inputs.size());
  };
  frames.Append(encoder.Begin(SomePreamble()), &written.bytes);
  written.ends.push_back(written.bytes.size());
  written.complete.push_back(0);
  put(encoder.Encode(written.inputs[0]));
  for (int i = 0; i < count; ++i) {
    const Input input = random.Next();
    if (!encoder.Gather(input)) {
      put(encoder.TakeQuiet());
      written.inputs.push_back(input);
      put(encoder.Encode(input));
    } else {
      written.inputs.push_back(input);
      if (encoder.gathered() == 40) put(encoder.TakeQuiet());
    }
  }
  put(encoder.TakeQuiet());
  put(encoder.End(EndReason::kEnded));
  return written;
}

// What a reader makes of the bytes: how many inputs, each the one that was written, until it stops.
struct Outcome {
  Status status;
  size_t inputs = 0;
  bool torn = false, ended = false;
};
Outcome ReadBack(const std::string& bytes, const std::vector<Input>& expected) {
  Outcome outcome;
  auto reader = JournalReader::Of(bytes, "test");
  if (!reader.ok()) return {reader.status()};
  std::vector<Input> inputs;
  while (true) {
    const Result<bool> more = (*reader)->Next(&inputs);
    if (!more.ok()) outcome.status = more.status();
    if (!more.ok() || !*more) break;
    for (const Input& input : inputs) {
      EXPECT_LT(outcome.inputs, expected.size());
      if (outcome.inputs >= expected.size()) return outcome;
      EXPECT_TRUE(SameInput(input, expected[outcome.inputs])) << "input " << outcome.inputs;
      ++outcome.inputs;
    }
  }
  outcome.torn = (*reader)->torn();
  outcome.ended = (*reader)->end().has_value();
  return outcome;
}

TEST(Journal, BringsBackInputsOfEveryKind) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Written written = Write(seed, 500);
    const Outcome outcome = ReadBack(written.bytes, written.inputs);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_EQ(outcome.inputs, written.inputs.size());
    EXPECT_TRUE(outcome.ended);
  }
}

TEST(Journal, BringsBackThePreamble) {
  const Preamble expected = SomePreamble();
  const auto reader = JournalReader::Of(Write(1, 3).bytes, "test");
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  const Preamble& got = (*reader)->preamble();
  EXPECT_EQ(WriteFields(got.policy), WriteFields(expected.policy));
  EXPECT_EQ(got.policy.hang_factor, expected.policy.hang_factor);
  EXPECT_EQ(got.policy.save_directory, expected.policy.save_directory);
  EXPECT_EQ(got.term, expected.term);
  EXPECT_EQ(got.build, "test");
}

TEST(Journal, GathersQuietInputsIntoAFewBytesEach) {
  Encoder encoder;
  Input input{.now = TimePoint(std::chrono::seconds(5)), .what = Start{}};
  (void)encoder.Encode(input);
  core::FromAgent from{{{1, 1}, Generation(2), Rank(3), Incarnation(4)}, core::Beat{1, {5, TrainPhase::kForward}}};
  input.what = core::ControllerEvent(from);
  EXPECT_FALSE(encoder.Gather(input)) << "the first one says all";
  (void)encoder.Encode(input);
  for (int i = 0; i < 1000; ++i) {
    auto& beat = std::get<core::Beat>(from.message);
    ++beat.count;
    beat.place.step += i % 2;
    input.now = input.now + std::chrono::milliseconds(10);
    input.what = core::ControllerEvent(from);
    ASSERT_TRUE(encoder.Gather(input));
    input.what = core::ControllerEvent(core::Tick{});
    ASSERT_TRUE(encoder.Gather(input));
  }
  EXPECT_LT(encoder.TakeQuiet().size(), 2000u * 5);
}

// Every length that a crash can leave.
TEST(Journal, ATornEndCostsOnlyWhatWasTorn) {
  const Written written = Write(5, 60);
  for (size_t length = 0; length < written.bytes.size(); ++length) {
    const Outcome outcome = ReadBack(written.bytes.substr(0, length), written.inputs);
    size_t whole = 0, frames = 0;
    while (frames < written.ends.size() && written.ends[frames] <= length) whole = written.complete[frames++];
    if (frames == 0) {
      EXPECT_EQ(outcome.status.code(), StatusCode::kInvalidArgument) << length;
      continue;
    }
    ASSERT_TRUE(outcome.status.ok()) << length << ": " << outcome.status.ToString();
    EXPECT_EQ(outcome.inputs, whole) << length;
    EXPECT_EQ(outcome.torn, written.ends[frames - 1] != length) << length;
    EXPECT_FALSE(outcome.ended);
  }
}

TEST(Journal, ATornEndOfZerosIsTornToo) {
  const Written written = Write(6, 60);
  const size_t at = written.ends[written.ends.size() / 2];
  const Outcome outcome = ReadBack(written.bytes.substr(0, at) + std::string(4096, '\0'), written.inputs);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_TRUE(outcome.torn);
}

TEST(Journal, AFlippedBitIsFoundWhereverItIs) {
  const Written written = Write(7, 60);
  for (size_t at = 0; at < written.bytes.size(); ++at)
    for (int bit = 0; bit < 8; bit += 3) {
      std::string bytes = written.bytes;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      const Outcome outcome = ReadBack(bytes, written.inputs);  // what is read before it is right
      EXPECT_FALSE(outcome.status.ok()) << at;
      EXPECT_FALSE(outcome.ended) << at;
    }
}

TEST(Journal, AMissingOrDoubledFrameIsFound) {
  const Written written = Write(8, 60);
  for (size_t i = 1; i + 2 < written.ends.size(); ++i) {
    const size_t begin = written.ends[i], end = written.ends[i + 1];
    EXPECT_FALSE(ReadBack(written.bytes.substr(0, begin) + written.bytes.substr(end), written.inputs).status.ok());
    EXPECT_FALSE(ReadBack(written.bytes.substr(0, end) + written.bytes.substr(begin), written.inputs).status.ok());
  }
  EXPECT_FALSE(ReadBack(written.bytes + "x", written.inputs).status.ok());
}

// Payloads of any bytes under a checksum that fits: nothing crashes, and what is read is no more than was said.
TEST(Journal, MutatedPayloadsAreReadOrRefused) {
  RandomInputs random(9);
  size_t refused = 0, read = 0;
  for (int round = 0; round < 4000; ++round) {
    Encoder encoder;
    FrameWriter frames;
    std::string bytes(kMagic);
    std::vector<std::string> payloads = {encoder.Begin(SomePreamble()), encoder.Encode(random.Begin())};
    for (int i = 0; i < 12; ++i) {
      const Input input = random.Next();
      if (encoder.Gather(input)) continue;
      payloads.push_back(encoder.TakeQuiet());
      payloads.push_back(encoder.Encode(input));
    }
    payloads.push_back(encoder.TakeQuiet());
    std::string& victim = payloads[round % 4 == 0 ? random.Below(2) : random.Below(payloads.size())];
    for (uint64_t n = 1 + random.Below(3); n > 0 && !victim.empty(); --n) {
      const size_t at = random.Below(victim.size());
      if (random.Below(4) == 0)
        victim.erase(at, 1 + random.Below(4));
      else
        victim[at] = static_cast<char>(random.Below(256));
    }
    for (const std::string& payload : payloads) frames.Append(payload, &bytes);
    auto reader = JournalReader::Of(bytes, "test");
    std::vector<Input> inputs;
    bool more = reader.ok();
    while (more) {
      const Result<bool> next = (*reader)->Next(&inputs);
      for (const Input& input : inputs)
        if (next.ok()) (void)WriteInput(input, {1, 1}, TimePoint());
      more = next.ok() && *next;
      (next.ok() ? read : refused) += 1;
    }
    refused += !reader.ok();
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(read, 1000u);
}

TEST(Journal, OtherFilesAreRefusedByName) {
  EXPECT_EQ(JournalReader::Open("/no/such/journal").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(JournalReader::Open("/").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(JournalReader::Open("/dev/zero").status().code(), StatusCode::kInvalidArgument);
  const Status status = JournalReader::Of("#!/bin/sh\nexit 0\n", "script.sh").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("script.sh"), std::string::npos);
  EXPECT_FALSE(JournalReader::Of("", "empty").ok());
  Preamble preamble = SomePreamble();
  preamble.version = 2;
  std::string bytes(kMagic);
  FrameWriter().Append(Encoder().Begin(preamble), &bytes);
  EXPECT_NE(JournalReader::Of(bytes, "newer").status().message().find("format 2"), std::string::npos);
}

TEST(JournalFiles, AreThoseOfAllLeadersByTerm) {
  for (const uint64_t term : {1, 2, 10}) EXPECT_EQ(TermOfName(NameOfTerm(term)), term);
  for (const char* name :
       {"run.json", "run.journal.old", "run.journal.term1", "run.journal.term", "run.journal.termx", "run.journals"})
    EXPECT_EQ(TermOfName(name), 0u) << name;
  std::string folder = (std::filesystem::temp_directory_path() / "kintsugi-journals-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  for (const char* name : {"run.journal.term10", "run.journal", "run.json", "run.journal.term2"})
    std::ofstream(folder + "/" + name) << "x";
  EXPECT_EQ(FilesIn(folder), (std::vector<std::string>{folder + "/run.journal", folder + "/run.journal.term2",
                                                       folder + "/run.journal.term10"}));
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(FilesIn(folder).empty());
}

}  // namespace
}  // namespace kintsugi::journal
