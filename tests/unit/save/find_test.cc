#include "replica/save/find.h"

#include <gtest/gtest.h>

#include "tests/unit/save/memory_file_system.h"
#include "tests/unit/save/world.h"

namespace kintsugi::checkpoint {
namespace {

void SetLatest(MemoryFileSystem& files, const std::string& text) {
  files.Content("root/latest").assign(text.begin(), text.end());
}

class Find : public testing::Test {
 protected:
  void SetUp() override {
    for (uint64_t step : {10, 20, 30}) ASSERT_TRUE(world_.Save(step, 1, 3).ok());
  }
  Step Found() {
    refused_.clear();
    const auto found = FindNewestComplete("root", files_, &refused_);
    return found.ok() ? found->step() : Step(0);
  }
  MemoryFileSystem files_;
  World world_{"root", files_};
  std::vector<std::string> refused_;
};

TEST_F(Find, TakesTheNewest) {
  EXPECT_EQ(Found(), Step(30));
  EXPECT_TRUE(refused_.empty());
}

TEST_F(Find, TakesANewerOneThanLatestWhenTheCrashCameBetween) {
  SetLatest(files_, "step_0000000020\n");
  EXPECT_EQ(Found(), Step(30));
}

TEST_F(Find, IgnoresATornLatest) {
  for (const char* torn : {"", "step_00000", "step_0000000030/../..", "\xFF\xFF", "step_9999999999\n"}) {
    SetLatest(files_, torn);
    EXPECT_EQ(Found(), Step(30)) << torn;
  }
  ASSERT_TRUE(files_.Remove("root/latest").ok());
  EXPECT_EQ(Found(), Step(30));
}

TEST_F(Find, PassesOverWhatIsTornAndSaysWhy) {
  files_.Content("root/step_0000000030/manifest.json").resize(50);
  EXPECT_EQ(Found(), Step(20));
  ASSERT_FALSE(refused_.empty());
  EXPECT_TRUE(Names(refused_[0], "step_0000000030/manifest.json", "torn")) << refused_[0];

  files_.Content("root/step_0000000020/objects.rank-00001.bin").push_back(0);
  EXPECT_EQ(Found(), Step(10));

  ASSERT_TRUE(files_.Remove("root/step_0000000010/part-00001.json").ok());
  const Status none = FindNewestComplete("root", files_).status();
  EXPECT_EQ(none.code(), StatusCode::kNotFound);
  EXPECT_TRUE(Names(none.message(), "manifest.json", "objects.rank-00001.bin", "part-00001.json")) << none.ToString();
}

TEST_F(Find, RefusesACheckpointUnderAnotherStepsName) {
  ASSERT_TRUE(files_.Rename("root/step_0000000030", "root/step_0000000040").ok());
  EXPECT_EQ(Found(), Step(20));
}

TEST_F(Find, StaysWithTheJobThatLatestNames) {
  World old("root", files_);
  old.job = "job-0";
  ASSERT_TRUE(old.Save(99, 1, 9).ok());
  SetLatest(files_, "step_0000000030\n");
  EXPECT_EQ(Found(), Step(30));
  SetLatest(files_, "torn");
  EXPECT_EQ(Found(), Step(99));
}

TEST(FindNewestComplete, AnEmptyOrAbsentRootHoldsNothing) {
  MemoryFileSystem files;
  EXPECT_EQ(FindNewestComplete("root", files).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(files.MakeFolder("root").ok());
  const Status none = FindNewestComplete("root", files).status();
  EXPECT_EQ(none.code(), StatusCode::kNotFound);
  EXPECT_TRUE(Names(none.message(), "'root'")) << none.ToString();
}

}  // namespace
}  // namespace kintsugi::checkpoint
