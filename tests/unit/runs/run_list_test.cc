// Which runs are found, and how they are told.
#include "tools/runs/run_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/journal/options.h"
#include "tools/runs/run_folder.h"

namespace kintsugi::runs {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunListTest : public ::testing::Test {
 protected:
  RunListTest() {
    std::string name = fs::temp_directory_path() / "kintsugi-runs-XXXXXX";
    runtime_ = ::mkdtemp(name.data());
    const char* before = std::getenv("XDG_RUNTIME_DIR");
    if (before) before_ = before;
    ::setenv("XDG_RUNTIME_DIR", runtime_.c_str(), 1);
  }
  ~RunListTest() override {
    before_.empty() ? ::unsetenv("XDG_RUNTIME_DIR") : ::setenv("XDG_RUNTIME_DIR", before_.c_str(), 1);
    fs::remove_all(runtime_);
  }
  std::vector<FoundRun> Find() { return FindRuns({RunBase()}); }
  fs::path Base() { return RunBase(); }

  fs::path runtime_;
  std::string before_;
};

TEST_F(RunListTest, FindsWhatLivesByItsLock) {
  EXPECT_THAT(Find(), IsEmpty());
  auto folder = RunFolder::Make();
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  folder->Describe(R"({"job":"J","node":"1","pid":42,"ranks":8,"began_unix_ms":1000,"program":"p","run_dir":"x"})");
  const auto found = Find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].state, RunState::kLive);
  EXPECT_EQ(found[0].job, "J");
  EXPECT_EQ(found[0].node, "1");
  EXPECT_EQ(found[0].pid, 42);
  EXPECT_EQ(found[0].ranks, 8);
  EXPECT_EQ(found[0].run_dir, "x");
  EXPECT_EQ(StateWords(found[0]), "SILENT") << "it was not asked";
  folder->Leave("", false);
  EXPECT_THAT(Find(), IsEmpty());
}

TEST_F(RunListTest, FindsARunInAFolderOfTheUsersChoice) {
  const fs::path chosen = runtime_ / "mine";
  {
    RunFolder folder = RunFolder::At(chosen);
    EXPECT_EQ(folder.path(), chosen);
    folder.Describe("{\"job\":\"J\",\"run_dir\":\"" + chosen.string() + "\"}");
    const auto found = Find();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].run_dir, chosen);
    EXPECT_NE(found[0].folder, chosen);
    EXPECT_EQ(found[0].pid, ::getpid()) << "by the folder's name";
  }
  EXPECT_THAT(Find(), IsEmpty());
  EXPECT_FALSE(fs::exists(chosen)) << "nothing was made there";
}

TEST_F(RunListTest, TellsWhatEndedFromWhatWasKilled) {
  fs::path kept;
  {
    auto folder = RunFolder::Make();
    ASSERT_TRUE(folder.ok());
    folder->Describe(R"({"job":"ended"})");
    kept = folder->path();
    std::ofstream(kept / journal::kFileName) << "x";
    std::ofstream(kept / "control.sock") << "x";
    folder->Leave(kept / journal::kFileName, true);
  }
  const fs::path killed = Base() / "run-123-abcdef";
  fs::create_directory(killed);
  std::ofstream(killed / "lock") << "";
  std::ofstream(killed / "control.sock") << "";
  std::ofstream(killed / journal::kFileName) << "x";
  fs::create_directory(Base() / "run-no-lock");
  auto found = Find();
  ASSERT_EQ(found.size(), 2u);
  std::sort(found.begin(), found.end(), [](const FoundRun& a, const FoundRun& b) { return a.job > b.job; });
  EXPECT_EQ(found[0].job, "ended");
  EXPECT_EQ(found[0].state, RunState::kEnded);
  EXPECT_EQ(found[1].state, RunState::kGone);
  EXPECT_EQ(StateWords(found[1]), "stale");
  EXPECT_EQ(found[1].pid, 123);
  EXPECT_TRUE(fs::exists(killed)) << "looking removes nothing";
}

TEST_F(RunListTest, PassesOverABaseThatOthersCanWriteTo) {
  auto folder = RunFolder::Make();
  ASSERT_TRUE(folder.ok());
  fs::permissions(Base(), fs::perms::all);
  EXPECT_THAT(Find(), IsEmpty());
  fs::permissions(Base(), fs::perms::owner_all);
  EXPECT_EQ(Find().size(), 1u);
}

TEST_F(RunListTest, ADescriptionThatIsNoneDoesNoHarm) {
  auto folder = RunFolder::Make();
  ASSERT_TRUE(folder.ok());
  for (const char* text : {"", "[1]", "{\"job\":7,\"pid\":\"x\",\"ranks\":1.5,\"run_dir\":null}"}) {
    folder->Describe(text);
    const auto found = Find();
    ASSERT_EQ(found.size(), 1u) << text;
    EXPECT_EQ(found[0].job, "") << text;
    EXPECT_EQ(found[0].ranks, 0) << text;
    EXPECT_EQ(found[0].run_dir, folder->path()) << text;
  }
}

// What opened or read one of these would wait for ever.
TEST_F(RunListTest, PipesAndLinksAreNotOpened) {
  auto folder = RunFolder::Make();
  ASSERT_TRUE(folder.ok());
  const fs::path made = folder->path();
  ASSERT_EQ(::mkfifo((made / kDescriptionName).c_str(), 0600), 0);
  auto found = Find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].job, "");
  const fs::path other = Base() / "run-123-abcdef";
  fs::create_directory(other);
  ASSERT_EQ(::mkfifo((other / kLockName).c_str(), 0600), 0);
  const fs::path linked = Base() / "run-124-abcdef";
  fs::create_directory(linked);
  fs::create_symlink(made / kLockName, linked / kLockName);
  EXPECT_EQ(Find().size(), 1u) << "they are none of ours";
  EXPECT_TRUE(RunFolder::Make().ok()) << "nor does a start wait for them";
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(RunListTest, OnlyWhatIsOverIsRemoved) {
  auto folder = RunFolder::Make();
  ASSERT_TRUE(folder.ok());
  const Status lives = RemoveRun(folder->path());
  EXPECT_EQ(lives.code(), StatusCode::kFailedPrecondition) << lives.ToString();
  const fs::path foreign = Base() / "run-no-lock";
  fs::create_directory(foreign);
  EXPECT_EQ(RemoveRun(foreign).code(), StatusCode::kFailedPrecondition);
  const fs::path killed = Base() / "run-123-abcdef";
  fs::create_directory(killed);
  std::ofstream(killed / kLockName) << "";
  std::ofstream(killed / journal::kFileName) << "x";
  EXPECT_TRUE(RemoveRun(killed).ok());
  EXPECT_FALSE(fs::exists(killed));
  EXPECT_TRUE(fs::exists(folder->path()) && fs::exists(foreign));
}

FoundRun Live() {
  FoundRun run;
  run.job = "J";
  run.node = "0";
  run.pid = 42;
  run.ranks = 2;
  run.began_ms = 1'000'000;
  run.run_dir = "/run/mine";
  run.status = {
      {"phase", "RUNNING"}, {"step", 12}, {"incidents", 1}, {"ranks", {{{"life", "ready"}}, {{"life", "dead"}}}}};
  return run;
}

TEST(RunList, TableHasAHeadAndWholeFolders) {
  FoundRun stale;
  stale.run_dir = "/a/very/long/folder";
  stale.state = RunState::kGone;
  EXPECT_EQ(ListTable({Live(), stale}, 1'200'000),
            "JOB  NODE  PID  STATE    STEP  RANKS  INCIDENTS  AGE    RUN FOLDER\n"
            "J    0     42   RUNNING  12    1/2    1          3 min  /run/mine\n"
            "?          ?    stale    -     ?      -          ?      /a/very/long/folder\n");
}

TEST(RunList, JsonSaysNullWhereNothingIsKnown) {
  FoundRun silent;
  silent.run_dir = "/x";
  const auto list = ListJson({Live(), silent}, 1'200'000);
  EXPECT_EQ(list[0]["phase"], "RUNNING");
  EXPECT_EQ(list[0]["ranks_ready"], 1);
  EXPECT_EQ(list[0]["age_s"], 200);
  EXPECT_EQ(list[0]["state"], "live");
  EXPECT_EQ(list[1]["answers"], false);
  for (const char* name : {"pid", "phase", "step", "ranks", "ranks_ready", "incidents", "age_s"})
    EXPECT_TRUE(list[1][name].is_null()) << name;
}

TEST(RunList, AgesReadAsPeopleSayThem) {
  EXPECT_EQ(AgeWords(-5), "0 s");
  EXPECT_EQ(AgeWords(119), "119 s");
  EXPECT_EQ(AgeWords(120), "2 min");
  EXPECT_EQ(AgeWords(7200 + 300), "2 h 05 min");
  EXPECT_EQ(AgeWords(9 * 86400 + 4 * 3600), "9 d 4 h");
}

}  // namespace
}  // namespace kintsugi::runs
