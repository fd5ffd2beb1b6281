// The recorder never harms its run: a limit, a full disk or a slow one ends the recording with one warning, and what is
// in the file replays.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <thread>

#include "runtime/journal/file_writer.h"
#include "tests/support/memory_log.h"
#include "tests/unit/journal/recorded.h"

namespace kintsugi::journal {
namespace {

struct Read {
  uint64_t inputs = 0;
  bool difference = false, torn = false;
  std::optional<EndReason> end;
};
Read ReadAll(const std::string& path) {
  auto reader = JournalReader::Open(path).value();
  const Replayed replayed = Replay(*reader, reader->preamble().policy, nullptr).value();
  return {replayed.inputs, replayed.difference.has_value(), reader->torn(), reader->end()};
}

size_t Warnings(const MemoryLogSink& log) {
  size_t count = 0;
  for (const std::string& line : log.lines()) count += line.find("journal_stopped") != std::string::npos;
  return count;
}

// Whether it came to be within a minute: a bound for safety.
bool ComesTrue(const std::function<bool()>& condition) {
  for (int ms = 0; ms < 60'000; ++ms, std::this_thread::sleep_for(std::chrono::milliseconds(1)))
    if (condition()) return true;
  return false;
}

class Recording : public testing::Test {
 protected:
  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "journal";
  const sim::Plan plan_ = sim::DrawPlan(21, sim::FindProfile("default").value(), 8);
  const std::vector<Input> inputs_ = InputsOf(plan_);
  const std::shared_ptr<MemoryLogSink> log_ = std::make_shared<MemoryLogSink>();
};

TEST_F(Recording, EndsWithAMark) {
  Record({path_}, plan_.policy, inputs_, log_).reset();
  const Read read = ReadAll(path_);
  EXPECT_EQ(read.inputs, inputs_.size());
  EXPECT_EQ(read.end, EndReason::kEnded);
  EXPECT_FALSE(read.difference);
  EXPECT_EQ(Warnings(*log_), 0u);
  struct stat found {};
  ASSERT_EQ(stat(path_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u) << "causes may quote what nobody else should read";
}

TEST_F(Recording, IsReadWhileItGoesOn) {
  const auto recorder = Record({path_}, plan_.policy, inputs_, log_);
  // All but the quiet inputs of the last quarter of a second.
  ASSERT_TRUE(ComesTrue([&] {
    return JournalReader::Open(path_).ok() && ReadAll(path_).inputs + 100 > inputs_.size();
  })) << "the file does not grow to the whole run";
  const Read read = ReadAll(path_);
  EXPECT_FALSE(read.end);
  EXPECT_FALSE(read.difference);
}

TEST_F(Recording, StopsAtItsLimitWithOneWarning) {
  Record({path_}, plan_.policy, inputs_, log_).reset();
  const auto whole = std::filesystem::file_size(path_);
  ASSERT_GT(whole, 10u * 4096) << "too small to try many limits";
  for (uint64_t limit = 4096; limit < whole; limit += 997) {
    auto log = std::make_shared<MemoryLogSink>();
    Record({.path = path_, .bytes_max = limit}, plan_.policy, inputs_, log).reset();
    EXPECT_LE(std::filesystem::file_size(path_), limit);
    const Read read = ReadAll(path_);
    EXPECT_EQ(read.end, EndReason::kFull);
    EXPECT_FALSE(read.difference);
    EXPECT_FALSE(read.torn);
    EXPECT_EQ(Warnings(*log), 1u);
  }
}

TEST_F(Recording, StopsWhereTheDiskDoesNotKeepUp) {
  // Nothing may wait: the first bytes beyond those that the disk has taken are too many.
  Record({.path = path_, .waiting_bytes_max = 600}, plan_.policy, inputs_, log_).reset();
  const Read read = ReadAll(path_);
  EXPECT_FALSE(read.difference);
  if (read.end == EndReason::kEnded) GTEST_SKIP() << "the disk kept up with bursts of 600 bytes";
  EXPECT_EQ(read.end, EndReason::kTooSlow);
  EXPECT_EQ(Warnings(*log_), 1u);
}

// As on a full disk: a write fails for good.
TEST_F(Recording, AFullDiskEndsTheRecordingNotTheRun) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 3000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  {
    auto recorder = Recorder::Open({path_}, plan_.policy, {1, 1}, log_).value();
    core::ControllerCore core(plan_.policy, {1, 1});
    for (const Input& input : inputs_) Feed(core, *recorder, input);
    ASSERT_TRUE(ComesTrue([&] { return Warnings(*log_) > 0; })) << "no warning";
    for (const Input& input : inputs_) recorder->Stepped(core::OperatorSave{}, input.now, {});
    EXPECT_FALSE(recorder->recording());
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(Warnings(*log_), 1u);
  const Read read = ReadAll(path_);
  EXPECT_FALSE(read.difference);
  EXPECT_GT(read.inputs, 1u);
  EXPECT_FALSE(read.end);
}

TEST_F(Recording, AFailedCheckIsReproduced) {
  {
    auto recorder = Recorder::Open({path_}, plan_.policy, {1, 1}, log_).value();
    core::ControllerCore core(plan_.policy, {1, 1});
    Feed(core, *recorder, inputs_[0]);
    recorder->Threw(core::Tick{}, inputs_[0].now);
  }
  // The check does not fail now: then and now differ.
  auto reader = JournalReader::Open(path_).value();
  const Replayed replayed = Replay(*reader, plan_.policy, nullptr).value();
  ASSERT_TRUE(replayed.difference);
  EXPECT_NE(replayed.difference->text.find("check"), std::string::npos);
}

TEST_F(Recording, PlacesThatAreNoFilesAreRefused) {
  const auto open = [&](const std::string& path) {
    return Recorder::Open({path}, plan_.policy, {1, 1}, log_).status().code();
  };
  EXPECT_EQ(open("/dev/null"), StatusCode::kInvalidArgument);
  EXPECT_EQ(open(folder_ / "missing/journal"), StatusCode::kInvalidArgument);
  EXPECT_EQ(open("/tmp"), StatusCode::kInvalidArgument);
}

// The log's end is the last thing that a launcher waits for; what holds the log longer cuts its last line off.
TEST(FileWriter, KeepsNothingOfItsHandlerBeyondItsEnd) {
  const std::string path = testing::TempDir() + "/kintsugi-file-writer";
  const auto log = std::make_shared<int>(0);
  for (int i = 0; i < 500; ++i) {
    auto writer = FileWriter::Open(path, 1024, [log](const Status&) {}).value();
    ASSERT_TRUE(writer->Write("bytes"));
    writer.reset();
    ASSERT_EQ(log.use_count(), 1) << "at the end of writer " << i;
  }
  (void)unlink(path.c_str());
}

}  // namespace
}  // namespace kintsugi::journal
