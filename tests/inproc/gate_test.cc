// The uneven cases of the gate: who is let out, who is held back, and where all then meet.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/inproc/reference.h"

namespace kintsugi::inproc {
namespace {

void HoldOthersInGate(World& world, std::vector<int> free, uint64_t step) {
  for (int rank = 0; rank < 4; ++rank)
    if (std::find(free.begin(), free.end(), rank) == free.end()) world.script().Hold(rank, step, Point::kInGate);
}

TEST(Gate, RanksHeldInItGoOnWhenOneIsUpdating) {
  World world;
  HoldOthersInGate(world, {0}, 3);
  world.script().Hold(0, 3, Point::kUpdate);
  world.StartAll();
  for (int rank = 1; rank < 4; ++rank) ASSERT_TRUE(world.script().AwaitReached(rank, 3, Point::kInGate));
  ASSERT_TRUE(world.script().AwaitReached(0, 3, Point::kUpdate));
  world.Kill(3);
  world.Replace(3);
  ExpectSameAsUndisturbed(world);
  const auto incident = OnlyIncident(world);
  EXPECT_EQ(incident.step, Step(3));
  EXPECT_EQ(incident.rung, Rung::kRespawn);
  EXPECT_EQ(incident.sources, std::vector<Rank>{Rank(1)});  // no survivor needed a repair
  EXPECT_EQ(world.trainer(1).updates(), 6u);
}

TEST(Gate, RanksHeldInItGoOnWhenOneHasCommitted) {
  World world;
  HoldOthersInGate(world, {2}, 3);
  world.script().Hold(2, 3, Point::kCommitted);
  world.StartAll();
  for (int rank : {0, 1, 3}) ASSERT_TRUE(world.script().AwaitReached(rank, 3, Point::kInGate));
  ASSERT_TRUE(world.script().AwaitReached(2, 3, Point::kCommitted));
  world.Kill(1);
  world.Replace(1);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).step, Step(3));
  EXPECT_EQ(OnlyIncident(world).sources, std::vector<Rank>{Rank(3)});
}

TEST(Gate, TheDeadRankIsNeverCountedEvenWhenItAloneHadPassed) {
  World world;
  HoldOthersInGate(world, {1}, 3);
  world.script().Hold(1, 3, Point::kUpdate);
  world.StartAll();
  for (int rank : {0, 2, 3}) ASSERT_TRUE(world.script().AwaitReached(rank, 3, Point::kInGate));
  ASSERT_TRUE(world.script().AwaitReached(1, 3, Point::kUpdate));
  world.Kill(1);
  world.Replace(1);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).step, Step(2));  // nobody who lives has begun update 3
}

TEST(Gate, AllAbandonTheStepWhenNobodyHasPassed) {
  World world;
  HoldOthersInGate(world, {}, 3);
  world.StartAll();
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(world.script().AwaitReached(rank, 3, Point::kInGate));
  world.Kill(0);
  world.Replace(0);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).step, Step(2));
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(world.trainer(rank).updates(), 6u) << "no update was applied twice";
}

TEST(Gate, ARankThatHasNotComeToItLetsNobodyPass) {
  World world;
  world.script().Hold(2, 3, Point::kBeforeUpdate);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(2, 3, Point::kBeforeUpdate));
  world.Kill(3);
  world.Replace(3);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).step, Step(2));
}

TEST(Gate, ATornRankBesideOthersHeldInItIsRebuiltAtTheNewStep) {
  World world;
  HoldOthersInGate(world, {0, 1}, 3);
  world.script().Do(1, 3, Point::kUpdate, Fault::kThrow);
  world.script().Hold(0, 3, Point::kUpdate);
  world.StartAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).step, Step(3));
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kRebuild);
}

TEST(Gate, ASecondFaultDuringTheStopKeepsTheCommonStep) {
  World world;
  HoldOthersInGate(world, {0}, 3);
  world.script().Hold(0, 3, Point::kUpdate);
  world.StartAll();
  for (int rank = 1; rank < 4; ++rank) ASSERT_TRUE(world.script().AwaitReached(rank, 3, Point::kInGate));
  ASSERT_TRUE(world.script().AwaitReached(0, 3, Point::kUpdate));
  world.Kill(3);
  world.Replace(3);
  world.Kill(0);
  world.Replace(0);
  ExpectSameAsUndisturbed(world);
}

class ControlPlaneGate : public testing::TestWithParam<Point> {};

TEST_P(ControlPlaneGate, ADeathAtEveryPointLeadsToOneStep) {
  WorldOptions options;
  options.gate = GateMode::kControlPlane;
  World world(options);
  world.script().Hold(1, 3, GetParam());
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(1, 3, GetParam()));
  world.Kill(1);
  world.Replace(1);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kRespawn);
}

INSTANTIATE_TEST_SUITE_P(Points, ControlPlaneGate,
                         testing::Values(Point::kForward, Point::kBeforeUpdate, Point::kUpdate, Point::kCommitted));

TEST(GateOff, TheNewestStepThatEveryShardHasALiveHolderOfIsTaken) {
  WorldOptions options;
  options.gate = GateMode::kOff;
  options.mirrored = false;  // mirroring before the update keeps replicas together
  World world(options);
  // Ranks 0 and 1 hold both shards at 3; 2 and 3 stand at 2 and are repaired.
  world.script().Hold(2, 3, Point::kBeforeUpdate);
  world.script().Hold(3, 3, Point::kBeforeUpdate);
  world.script().Hold(0, 3, Point::kCommitted);
  world.script().Hold(1, 3, Point::kCommitted);
  world.script().Do(1, 3, Point::kCommitted, Fault::kThrow);
  world.StartAll();
  for (int rank : {2, 3}) ASSERT_TRUE(world.script().AwaitReached(rank, 3, Point::kBeforeUpdate));
  for (int rank : {0, 1}) ASSERT_TRUE(world.script().AwaitReached(rank, 3, Point::kCommitted));
  world.script().Release(1, 3, Point::kCommitted);
  world.WaitAll();
  EXPECT_EQ(world.ended()->exit_code, 0) << world.ended()->text;
  EXPECT_EQ(OnlyIncident(world).step, Step(3));
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kRebuild);
}

TEST(GateOff, WithoutACommonStepAndACheckpointTheRunEndsAndNamesTheRefusals) {
  WorldOptions options;
  options.gate = GateMode::kOff;
  World world(options);
  for (int rank : {1, 3}) world.script().Hold(rank, 3, Point::kBeforeUpdate);
  for (int rank : {0, 2}) world.script().Hold(rank, 3, Point::kCommitted);
  world.script().Do(0, 3, Point::kCommitted, Fault::kThrow);
  world.StartAll();
  for (int rank : {1, 3}) ASSERT_TRUE(world.script().AwaitReached(rank, 3, Point::kBeforeUpdate));
  for (int rank : {0, 2}) ASSERT_TRUE(world.script().AwaitReached(rank, 3, Point::kCommitted));
  world.script().Release(0, 3, Point::kCommitted);
  world.WaitAll();
  EXPECT_EQ(world.ended()->exit_code, 1);
  const auto incident = OnlyIncident(world);
  EXPECT_EQ(incident.rung, Rung::kExit);
  const auto refused = [&](Rung rung, core::Refusal reason) {
    return std::any_of(incident.reasons.begin(), incident.reasons.end(),
                       [&](const core::RungReason& r) { return r.rung == rung && r.reason == reason; });
  };
  EXPECT_TRUE(refused(Rung::kRetry, core::Refusal::kShardLost) || refused(Rung::kRetry, core::Refusal::kStateLost));
  EXPECT_TRUE(refused(Rung::kReload, core::Refusal::kNoCheckpoint));
  EXPECT_TRUE(refused(Rung::kDump, core::Refusal::kNoSaveDirectory));
}

}  // namespace
}  // namespace kintsugi::inproc
