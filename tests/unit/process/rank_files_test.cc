#include "runtime/process/rank_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/support/memory_log.h"
#include "tests/unit/process/process_harness.h"

namespace kintsugi {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class RankFilesTest : public ::testing::Test {
 protected:
  RankFilesTest() {
    std::string name = fs::temp_directory_path() / "kintsugi-ranks-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~RankFilesTest() override { fs::remove_all(folder_); }

  std::shared_ptr<RankFiles> Open(const std::string& below = "out") {
    auto files = RankFiles::Open({(folder_ / below).string(), "J", "0"}, log_);
    EXPECT_TRUE(files.ok()) << files.status().message();
    return *files;
  }
  std::string Read(const std::string& name) {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  fs::path folder_;
  std::shared_ptr<MemoryLogSink> log_ = std::make_shared<MemoryLogSink>();
};

TEST_F(RankFilesTest, AppendOverLivesAndMarkEach) {
  {
    const auto files = Open("a/b");
    files->OnBegan(Rank(2), Incarnation(1), 4711);
    files->OnLine(Rank(2), "first \xff");
    files->OnLine(Rank(0), "of another");
    files->OnEnded(Rank(2), Incarnation(1), "killed by signal 9");
    files->OnLine(Rank(2), "was still in the pipe");
    files->OnBegan(Rank(2), Incarnation(2), 4712);
    files->OnEnded(Rank(2), Incarnation(2), "exited with code 0");
    files->OnSpareLine("warm");
  }
  { Open("a/b")->OnLine(Rank(2), "of the next run"); }
  EXPECT_THAT(Read("a/b/rank-2.log"),
              MatchesRegex("--- kintsugi: rank 2, life 1, process 4711 began at [^ ]+ \\(job J\\)\n"
                           "first \xff\nwas still in the pipe\n"
                           "--- kintsugi: rank 2, life 1 killed by signal 9\n"
                           "--- kintsugi: rank 2, life 2, process 4712 began at [^ ]+ \\(job J\\)\n"
                           "--- kintsugi: rank 2, life 2 exited with code 0\n"
                           "of the next run\n"));
  EXPECT_EQ(Read("a/b/rank-0.log"), "of another\n");
  EXPECT_EQ(Read("a/b/spares-node-0.log"), "warm\n");
  EXPECT_TRUE(log_->lines().empty());
}

TEST_F(RankFilesTest, AFullDiskIsToldOnceAndMarkedWhereLinesAreMissing) {
  const auto files = Open();
  ASSERT_EQ(::symlink("/dev/full", (folder_ / "out/rank-1.log").c_str()), 0);
  for (int i = 0; i < 3; ++i) files->OnLine(Rank(1), "lost");
  files->OnLine(Rank(0), "unharmed");
  ASSERT_TRUE(files->Flush(kSafety));
  EXPECT_THAT(log_->lines(), ElementsAre(HasSubstr("event=output_lost")));
  EXPECT_THAT(log_->lines()[0], HasSubstr("rank-1.log"));
  EXPECT_EQ(files->lost(), 3u);
  EXPECT_EQ(Read("out/rank-0.log"), "unharmed\n");
}

TEST_F(RankFilesTest, AFolderThatIsGoneIsLookedForAgain) {
  const auto files = Open();
  fs::remove_all(folder_ / "out");
  files->OnLine(Rank(3), "lost");
  ASSERT_TRUE(files->Flush(kSafety));
  EXPECT_EQ(files->lost(), 1u);
  fs::create_directory(folder_ / "out");
  const auto until = std::chrono::steady_clock::now() + kSafety;
  while (Read("out/rank-3.log").empty() && std::chrono::steady_clock::now() < until) {
    files->OnLine(Rank(3), "kept");
    ASSERT_TRUE(files->Flush(kSafety));
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_THAT(Read("out/rank-3.log"),
              MatchesRegex("--- kintsugi: [0-9]+ lines are missing here: No such file or directory\nkept\n"));
  EXPECT_THAT(log_->lines(), ElementsAre(HasSubstr("event=output_lost"), HasSubstr("event=output_goes_on")));
}

TEST_F(RankFilesTest, ManyRanksTakeFewDescriptors) {
  const auto files = Open();
  const auto open = [] { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()); };
  const auto before = open();
  for (int round = 0; round < 2; ++round)
    for (int rank = 0; rank < 600; ++rank) files->OnLine(Rank(rank), "line");
  ASSERT_TRUE(files->Flush(kSafety));
  EXPECT_LE(open() - before, 256);
  EXPECT_EQ(files->lost(), 0u);
  EXPECT_EQ(Read("out/rank-599.log"), "line\nline\n");
}

TEST_F(RankFilesTest, NameTheFolderThatCannotBeWritten) {
  std::ofstream(folder_ / "file") << "";
  for (const std::string& place : {std::string("/proc/out"), (folder_ / "file").string()}) {
    const Status status = RankFiles::Open({place, "J", "0"}, log_).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr(place));
  }
}

}  // namespace
}  // namespace kintsugi
