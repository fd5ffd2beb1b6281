// A log in a file: rotated, lost where it cannot be written, gone on with where it can again.
#include "tools/logs/log_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

namespace kintsugi::logs {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kSafety = 60s;

class LogFileTest : public ::testing::Test {
 protected:
  LogFileTest() {
    std::string name = fs::temp_directory_path() / "kintsugi-logs-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~LogFileTest() override { fs::remove_all(folder_); }

  std::string Read(const std::string& name) {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t Files() {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(LogFileTest, RotatesBySizeAndKeepsSoMany) {
  auto file = LogFile::Open({.file = folder_ / "run.log", .bytes_max = 100, .kept = 2});
  ASSERT_TRUE(file.ok()) << file.status().message();
  for (int i = 0; i < 9; ++i) (*file)->Write(std::string(39, static_cast<char>('a' + i)) + "\n");
  ASSERT_TRUE((*file)->Flush(kSafety));
  EXPECT_EQ(Read("run.log"), std::string(39, 'i') + "\n");
  EXPECT_EQ(Read("run.1.log"), std::string(39, 'g') + "\n" + std::string(39, 'h') + "\n");
  EXPECT_EQ(Read("run.2.log"), std::string(39, 'e') + "\n" + std::string(39, 'f') + "\n");
  EXPECT_EQ(Files(), 3u);
  EXPECT_EQ((*file)->lost(), 0u);
}

TEST_F(LogFileTest, AppendsToWhatIsThere) {
  std::ofstream(folder_ / "run.log") << "before\n";
  auto file = LogFile::Open({.file = folder_ / "run.log"});
  ASSERT_TRUE(file.ok());
  (*file)->Write("after\n");
  ASSERT_TRUE((*file)->Flush(kSafety));
  EXPECT_EQ(Read("run.log"), "before\nafter\n");
}

TEST_F(LogFileTest, AFullDiskLosesLinesAndIsToldOnce) {
  // Every write to /dev/full fails as one to a full disk does.
  ASSERT_EQ(::symlink("/dev/full", (folder_ / "run.log").c_str()), 0);
  std::mutex mutex;
  std::vector<std::string> told;
  auto file = LogFile::Open({.file = folder_ / "run.log", .on_trouble = [&](const std::string& why, uint64_t) {
                               const std::lock_guard lock(mutex);
                               told.push_back(why);
                             }});
  ASSERT_TRUE(file.ok());
  for (int i = 0; i < 5; ++i) (*file)->Write("lost\n");
  ASSERT_TRUE((*file)->Flush(kSafety));
  {
    const std::lock_guard lock(mutex);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_NE(told[0].find("No space left"), std::string::npos) << told[0];
  }
  EXPECT_EQ((*file)->lost(), 5u);
  fs::remove(folder_ / "run.log");  // there is room again
  const auto until = std::chrono::steady_clock::now() + kSafety;
  while (Read("run.log").empty() && std::chrono::steady_clock::now() < until) {
    (*file)->Write("kept\n");
    ASSERT_TRUE((*file)->Flush(kSafety));
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(Read("run.log"), "kept\n");
  const std::lock_guard lock(mutex);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1], "") << "it goes on";
}

TEST_F(LogFileTest, AFileThatNobodyEmptiesHoldsUpNobody) {
  // Opened for writing without a reader, a pipe blocks the one that opens it; with one that does not read, the one that writes.
  ASSERT_EQ(::mkfifo((folder_ / "run.log").c_str(), 0600), 0);
  std::atomic<bool> over = false;
  std::thread reader([&] {
    std::ifstream in(folder_ / "run.log");
    while (!over) std::this_thread::sleep_for(1ms);
  });
  auto file = LogFile::Open({.file = folder_ / "run.log", .queue_bytes_max = 1 << 16});
  ASSERT_TRUE(file.ok());
  for (int i = 0; i < 1000; ++i) (*file)->Write(std::string(999, 'x') + "\n");
  EXPECT_GT((*file)->lost(), 0u);
  file->reset();  // gives up
  over = true;
  reader.join();
}

TEST_F(LogFileTest, NamesTheFileThatCannotBeOpened) {
  const Status status = LogFile::Open({.file = "/proc/nobody/run.log"}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("/proc/nobody/run.log"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace kintsugi::logs
