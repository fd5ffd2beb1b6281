#include "runtime/launcher/lease/owner_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace kintsugi {
namespace {

namespace fs = std::filesystem;
using Claim = OwnerFile::Claim;
using nlohmann::json;
using ::testing::HasSubstr;

class OwnerFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "kintsugi-owner-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    base_ = pattern;
    root_ = base_ + "/checkpoints";
  }
  void TearDown() override { fs::remove_all(base_); }

  std::string Path() const { return root_ + "/owner.json"; }
  json Text() const {
    std::ifstream file(Path());
    return json::parse(file);
  }
  void Write(const json& text) const { std::ofstream(Path()) << text.dump(); }
  // As if it had been touched so long ago.
  void Age(std::chrono::seconds age) const { fs::last_write_time(Path(), fs::file_time_type::clock::now() - age); }

  std::string base_, root_;
};

TEST_F(OwnerFileTest, WhoLivesKeepsItAndIsNamed) {
  OwnerFile first(root_, "run-a", getpid());
  ASSERT_EQ(first.TryTake()->claim, Claim::kMine);
  Age(std::chrono::hours(1));  // its process is there: the file's age says nothing
  OwnerFile second(root_, "run-b", getpid());
  const auto answer = second.TryTake();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->claim, Claim::kAnothers);
  EXPECT_THAT(answer->whose, HasSubstr("run-a"));
  EXPECT_THAT(answer->whose, HasSubstr(std::to_string(getpid())));
  EXPECT_EQ(first.Touch()->claim, Claim::kMine);
  first.GiveBack();
  EXPECT_EQ(second.TryTake()->claim, Claim::kMine);
}

// A run that saved nothing removes the root it made; one that begins in that moment makes it again.
TEST_F(OwnerFileTest, IsTakenThoughAnotherTakesTheRootAway) {
  std::atomic<int> round = 0;
  const std::jthread another([&](const std::stop_token& stop) {
    for (int struck = 0; !stop.stop_requested();)
      if (const int now = round; struck < now && rmdir(root_.c_str()) == 0) struck = now;  // once for each start
  });
  for (int i = 0; i < 1000; ++i) {
    OwnerFile file(root_, "run", getpid());
    ++round;
    const auto answer = file.TryTake();
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    unlink(Path().c_str());
    rmdir(root_.c_str());
  }
}

TEST_F(OwnerFileTest, OfAProcessThatIsGoneItIsFree) {
  OwnerFile first(root_, "run-a", getpid());
  ASSERT_EQ(first.TryTake()->claim, Claim::kMine);
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  ASSERT_EQ(waitpid(gone, nullptr, 0), gone);
  json text = Text();
  text["pid"] = gone;
  Write(text);
  EXPECT_EQ(OwnerFile(root_, "run-b", getpid()).TryTake()->claim, Claim::kMine);
}

TEST_F(OwnerFileTest, ANumberThatWasGivenAwayAgainIsNotItsProcess) {
  OwnerFile first(root_, "run-a", getpid());
  ASSERT_EQ(first.TryTake()->claim, Claim::kMine);
  json text = Text();
  text["begun"] = "1";
  Write(text);
  EXPECT_EQ(OwnerFile(root_, "run-b", getpid()).TryTake()->claim, Claim::kMine);
}

TEST_F(OwnerFileTest, OfAnotherHostTheFilesAgeDecides) {
  OwnerFile first(root_, "run-a", getpid());
  ASSERT_EQ(first.TryTake()->claim, Claim::kMine);
  json text = Text();
  text["realm"] = "another boot";
  text["host"] = "elsewhere";
  Write(text);
  OwnerFile second(root_, "run-b", getpid());
  const auto answer = second.TryTake();
  ASSERT_EQ(answer->claim, Claim::kPerhaps);
  EXPECT_THAT(answer->whose, HasSubstr("elsewhere"));
  Age(std::chrono::seconds(10));
  EXPECT_EQ(second.TryTake()->claim, Claim::kPerhaps);
  EXPECT_NE(second.TryTake()->touched, answer->touched);
  Age(std::chrono::seconds(40));
  EXPECT_EQ(second.TryTake()->claim, Claim::kMine);
  EXPECT_EQ(first.Touch()->claim, Claim::kAnothers);
  EXPECT_THAT(first.Touch()->whose, HasSubstr("run-b"));
}

TEST_F(OwnerFileTest, AnotherLeaderOfTheSameRunGoesOn) {
  OwnerFile first(root_, "run-a", getpid()), next(root_, "run-a", getpid());
  ASSERT_EQ(first.TryTake()->claim, Claim::kMine);
  json text = Text();
  text["pid"] = 1;
  Write(text);
  EXPECT_EQ(next.Touch()->claim, Claim::kMine);
  EXPECT_EQ(Text()["pid"], getpid());
}

TEST_F(OwnerFileTest, ATornFileBelongsToSomebody) {
  fs::create_directories(root_);
  std::ofstream(Path()) << "{\"owner\": \"run";
  EXPECT_EQ(OwnerFile(root_, "run-b", getpid()).TryTake()->claim, Claim::kPerhaps);
  Age(std::chrono::minutes(2));
  EXPECT_EQ(OwnerFile(root_, "run-b", getpid()).TryTake()->claim, Claim::kMine);
}

TEST_F(OwnerFileTest, ClearsAwayWhatOthersLeftUnfinishedAndNothingElse) {
  for (const char* name : {"step_0000000012.tmp-g7.job-a", "step_0000000012", "mine.tmp-g7"})
    fs::create_directories(root_ + "/" + name);
  OwnerFile file(root_, "run-b", getpid());
  ASSERT_EQ(file.TryTake()->claim, Claim::kMine);
  file.ClearAway();
  EXPECT_FALSE(fs::exists(root_ + "/step_0000000012.tmp-g7.job-a"));
  EXPECT_TRUE(fs::exists(root_ + "/step_0000000012"));
  EXPECT_TRUE(fs::exists(root_ + "/mine.tmp-g7"));
  file.GiveBack();
  EXPECT_TRUE(fs::exists(root_));
}

TEST_F(OwnerFileTest, ARootThatItMadeAndNobodyUsedGoes) {
  OwnerFile file(root_, "run-a", getpid());
  ASSERT_EQ(file.TryTake()->claim, Claim::kMine);
  file.GiveBack();
  EXPECT_FALSE(fs::exists(root_));
}

}  // namespace
}  // namespace kintsugi
