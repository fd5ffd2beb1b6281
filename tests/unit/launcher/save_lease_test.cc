// Who saves into a directory, with the helper process that watches over it: two runs never do at once.
#include "runtime/launcher/lease/save_lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.h"

namespace kintsugi {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SaveLeaseTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<SaveLease>> Take(const std::string& owner) {
    return SaveLease::Take(root(), owner, NullLogSink());
  }
  // Whether another run may save there.
  bool IsFree() {
    const auto other = Take("other");
    if (!other.ok()) {
      EXPECT_EQ(other.status().code(), StatusCode::kFailedPrecondition);
    }
    return other.ok();
  }
  std::string root() { return folder_ / "checkpoints"; }
  std::string file() { return root() + "/owner.json"; }

  TemporaryFolder folder_;
};

TEST_F(SaveLeaseTest, KeepsOtherRunsOutUntilItIsGivenBack) {
  auto taken = Take("mine");
  ASSERT_TRUE(taken.ok()) << taken.status().ToString();
  const auto other = Take("other");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.status().message(), AllOf(HasSubstr(root()), HasSubstr("run 'mine'"), HasSubstr("which lives")));
  taken->reset();
  EXPECT_FALSE(std::filesystem::exists(file()));
  EXPECT_TRUE(IsFree());
}

TEST_F(SaveLeaseTest, IsOneForAllLeadersOfARun) {
  auto first = Take("mine");
  ASSERT_TRUE(first.ok());
  auto next = SaveLease::GoOn(root(), "mine", NullLogSink());
  ASSERT_TRUE(next.ok()) << next.status().ToString();
  (*first)->HandOver();
  first->reset();
  EXPECT_TRUE(std::filesystem::exists(file())) << "it was handed over, not given back";
  EXPECT_FALSE(IsFree());
  next->reset();
  EXPECT_TRUE(IsFree());
}

TEST_F(SaveLeaseTest, ClearsAwayWhatAnInterruptedSaveLeft) {
  const std::string unfinished = root() + "/step_7.tmp-g3.job", whole = root() + "/step_6";
  std::filesystem::create_directories(unfinished);
  std::filesystem::create_directories(whole);
  const auto taken = Take("mine");
  ASSERT_TRUE(taken.ok());
  EXPECT_FALSE(std::filesystem::exists(unfinished));
  EXPECT_TRUE(std::filesystem::exists(whole));
}

TEST_F(SaveLeaseTest, SaysWhyADirectoryCannotBeMade) {
  std::ofstream(folder_ / "checkpoints") << "a file";
  const auto taken = Take("mine");
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(taken.status().message(), AllOf(HasSubstr(root()), HasSubstr("cannot be")));
}

}  // namespace
}  // namespace kintsugi
