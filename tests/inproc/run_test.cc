// An undisturbed run, with each kind of gate, and the ends it can have.
#include <gtest/gtest.h>

#include "tests/inproc/reference.h"

namespace kintsugi::inproc {
namespace {

class AgentRun : public testing::TestWithParam<GateMode> {};

TEST_P(AgentRun, EndsOkOnEveryRankWithTheSameStateUnderEveryGate) {
  WorldOptions options;
  options.gate = GetParam();
  World world(options);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_TRUE(world.incidents().empty());
  for (int rank = 0; rank < options.ranks; ++rank) {
    EXPECT_EQ(world.trainer(rank).join_kind(), JoinKind::kFresh);
    EXPECT_EQ(world.trainer(rank).updates(), options.steps);
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, AgentRun, testing::Values(GateMode::kControlPlane, GateMode::kTrainer, GateMode::kOff));

TEST(AgentRun, ASingleRankWithoutReplicasRuns) {
  WorldOptions options;
  options.ranks = 1;
  options.replicas = 1;
  World world(options);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
}

TEST(AgentRun, TheExitHandlerHasTheLastWordOnTheTrainersThread) {
  WorldOptions options;
  std::atomic<int> calls{0};
  static thread_local bool trainers_thread = false;
  Tweaks tweaks;
  tweaks.after_registration = [&](ToyTrainer& trainer) {
    trainers_thread = true;
    return trainer.agent().RegisterHandler(
        HandlerKind::kExit,
        [](HandlerContext& call, void* count) {
          EXPECT_TRUE(trainers_thread);
          EXPECT_EQ(call.step, Step(6));
          ++*static_cast<std::atomic<int>*>(count);
          throw 7;  // and what it throws harms nobody
          return Status::Ok();
        },
        &calls);
  };
  options.tweaks[-1] = tweaks;
  World world(options);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(calls, 4);
}

TEST(AgentRun, ReportsOfEveryRankReachTheController) {
  World world;
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  const auto totals = world.OnController([&] { return world.controller().reports().Committed(Step(6)); });
  EXPECT_EQ(totals.samples_consumed, 24u);
  EXPECT_EQ(totals.losses.size(), 6u);
}

}  // namespace
}  // namespace kintsugi::inproc
