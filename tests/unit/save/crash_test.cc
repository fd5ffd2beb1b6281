// The promise that a checkpoint is visible only when it is complete: power is cut after every operation of a save, a
// publication and a rotation, and what a reader then finds is the old checkpoint or the new one, whole.
#include <gtest/gtest.h>

#include "runtime/base/random.h"
#include "tests/unit/save/memory_file_system.h"
#include "tests/unit/save/world.h"

namespace kintsugi::checkpoint {
namespace {

enum class Sabotage { kNone, kNoFolderSyncs, kNoFileSyncs };

struct Tally {
  int crashes = 0, found_old = 0, found_new = 0, broken = 0;
};

struct Scenario {
  uint64_t old_step, new_step;
  bool can_exchange = true;
  bool with_side_files = false;
};

// One power cut after `operation`; false when the work ended before.
bool CutOnce(const Scenario& scenario, Sabotage sabotage, int operation, uint64_t seed, Tally* tally) {
  MemoryFileSystem files;
  if (!scenario.can_exchange) files.CannotExchange();
  World world("root", files);
  if (scenario.with_side_files) world.AddSideFiles();
  EXPECT_TRUE(world.Save(scenario.old_step, 1, 1).ok());
  if (sabotage == Sabotage::kNoFolderSyncs) files.IgnoreFolderSyncs();
  if (sabotage == Sabotage::kNoFileSyncs) files.IgnoreFileSyncs();
  files.FailAt(operation, EIO, true);
  const Status saved = world.Save(scenario.new_step, 2, 1);
  const bool reached = files.operations() >= operation;
  Random random(seed);
  files.CutPower(random);

  ++tally->crashes;
  const auto found = FindNewestComplete("root", files);
  const bool whole = found.ok() && Verify(found->path, files).ok() && world.LoadAll(found->path).ok() &&
                     world.IsAt(found->step().value());
  // What was reported as saved must be there.
  const bool kept = !saved.ok() || (found.ok() && found->step() == Step(scenario.new_step));
  if (!whole || !kept) {
    ++tally->broken;
    if (sabotage == Sabotage::kNone)
      ADD_FAILURE() << "power cut at operation " << operation << ", seed " << seed << ": saved " << saved.ToString()
                    << ", found " << found.status().ToString();
    return reached;
  }
  ++(found->step() == Step(scenario.new_step) ? tally->found_new : tally->found_old);
  return reached;
}

Tally CutEverywhere(const Scenario& scenario, Sabotage sabotage) {
  Tally tally;
  for (int operation = 1;; ++operation) {
    bool reached = true;
    for (uint64_t seed = 0; seed < 4; ++seed)
      reached &= CutOnce(scenario, sabotage, operation, seed * 1000 + static_cast<uint64_t>(operation), &tally);
    if (!reached || testing::Test::HasFailure() || tally.broken > 0) return tally;
  }
}

TEST(PowerCut, LeavesTheOldCheckpointOrTheNewOneWhole) {
  const Tally tally = CutEverywhere({10, 20}, Sabotage::kNone);
  EXPECT_GT(tally.crashes, 100);
  EXPECT_GT(tally.found_old, 0);
  EXPECT_GT(tally.found_new, 0);
}

TEST(PowerCut, LeavesSideFilesWholeWithTheirCheckpoint) {
  const Tally tally = CutEverywhere({10, 20, true, true}, Sabotage::kNone);
  EXPECT_GT(tally.found_old, 0);
  EXPECT_GT(tally.found_new, 0);
}

TEST(PowerCut, LeavesOneOfTheTwoWhenTheSameStepIsSavedAgain) {
  for (const bool can_exchange : {true, false}) {
    const Tally tally = CutEverywhere({20, 20, can_exchange}, Sabotage::kNone);
    EXPECT_GT(tally.found_new, 80);
  }
}

// The model of the disk must be able to catch a mistake: without the syncs the promise does not hold.
TEST(PowerCut, WouldBreakThePromiseWithoutTheSyncs) {
  EXPECT_GT(CutEverywhere({10, 20}, Sabotage::kNoFolderSyncs).broken, 0);
  EXPECT_GT(CutEverywhere({10, 20}, Sabotage::kNoFileSyncs).broken, 0);
}

// Not a power cut but a process that dies or an operation that fails: everything written stays, the next attempt works.
TEST(FailedOperation, NeverMakesATornCheckpointVisibleAndTheNextSaveWorks) {
  for (int error : {ENOSPC, EIO, EACCES}) {
    for (int operation = 1;; ++operation) {
      MemoryFileSystem files;
      World world("root", files);
      ASSERT_TRUE(world.Save(10, 1, 1).ok());
      files.FailAt(operation, error, false);
      const Status saved = world.Save(20, 2, 1);
      const bool reached = files.operations() >= operation;
      files.FailNever();
      const auto found = FindNewestComplete("root", files);
      ASSERT_TRUE(found.ok()) << operation << ": " << found.status().ToString();
      ASSERT_TRUE(Verify(found->path, files).ok()) << operation;
      ASSERT_TRUE(!saved.ok() || found->step() == Step(20)) << operation;
      ASSERT_TRUE(saved.ok() || Names(saved.message(), "step 20", "generation 2")) << saved.ToString();
      ASSERT_TRUE(world.Save(20, 3, 1).ok()) << operation;
      ASSERT_EQ(FindNewestComplete("root", files)->step(), Step(20));
      for (const std::string& path : files.AllFiles()) ASSERT_EQ(path.find(".tmp-"), std::string::npos) << path;
      if (!reached) break;
    }
  }
}

}  // namespace
}  // namespace kintsugi::checkpoint
