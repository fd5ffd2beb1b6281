// Lost and replaced processes, and lost connections.
#include <gtest/gtest.h>

#include "runtime/process/shared_page.h"
#include "tests/inproc/reference.h"

namespace kintsugi::inproc {
namespace {

TEST(Replacement, AProcessThatComesByItselfTakesALostOnesPlace) {
  World world;
  world.script().Hold(1, 4, Point::kUpdate);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(1, 4, Point::kUpdate));
  world.Kill(1);
  ASSERT_TRUE(world.AwaitPhase(core::Phase::kAdmit));  // known lost before anybody came in its place
  world.Replace(1);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kRespawn);
  EXPECT_EQ(world.trainer(1).join_kind(), JoinKind::kReplacement);
  EXPECT_EQ(world.trainers()[1]->Wait().code(), StatusCode::kEnded);
}

TEST(Replacement, ASecondLiveIncarnationIsAFaultOfTheFirst) {
  World world;
  world.script().Hold(1, 3, Point::kForward);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(1, 3, Point::kForward));
  world.Replace(1);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kRespawn);
  // The first learns that it was replaced, and its attempts to come back do not cost the second its connection.
  EXPECT_EQ(world.trainers()[1]->Wait().code(), StatusCode::kEnded);
  EXPECT_EQ(world.trainers()[1]->exit_code(), 1);
}

TEST(Replacement, OfAReplacementDuringItsRepairIsOneMoreAttempt) {
  WorldOptions options;
  std::atomic<int> rollbacks{0};
  Tweaks tweaks;
  World* running = nullptr;
  tweaks.handler = [&](HandlerKind kind, HandlerContext& call, ToyTrainer& trainer) {
    if (kind == HandlerKind::kRollback && trainer.join_kind() == JoinKind::kReplacement && rollbacks++ == 0) {
      running->Kill(3);
      while (!call.cancel->cancelled() && !running->script().AwaitReached(3, 99, Point::kForward)) {
      }
    }
    return Status::Ok();
  };
  options.tweaks[3] = tweaks;
  World world(options);
  running = &world;
  world.script().Hold(3, 3, Point::kForward);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(3, 3, Point::kForward));
  world.Kill(3);
  world.Replace(3);
  while (rollbacks == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  world.script().Pass(3, 99, Point::kForward, [] { return true; });  // lets the killed one's handler return
  world.Replace(3);
  ExpectSameAsUndisturbed(world);
}

TEST(Silence, ARankWithoutBeatsIsGivenUpAndReplaced) {
  auto page = SharedPage::Create();
  ASSERT_TRUE(page.ok());
  WorldOptions options;
  options.policy.silence = std::chrono::seconds(1);
  options.page_fds[2] = page->fd();  // it will be told to write into a page that nobody reads
  World world(options);
  world.script().Hold(2, 3, Point::kForward);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(2, 3, Point::kForward));
  ASSERT_TRUE(world.AwaitPhase(core::Phase::kAdmit));
  world.Replace(2);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(world.incidents().front().signal, core::FaultKind::kSilence);
  EXPECT_EQ(world.incidents().front().rung, Rung::kRespawn);
  const Status given_up = world.trainers()[2]->Wait();
  EXPECT_NE(given_up.message().find("was given up"), std::string::npos) << given_up.ToString();
}

class Reconnect : public testing::TestWithParam<GateMode> {};

TEST_P(Reconnect, HealsWithNoNewGeneration) {
  WorldOptions options;
  options.gate = GetParam();
  World world(options);
  world.script().Hold(1, 3, Point::kBeforeUpdate);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(1, 3, Point::kBeforeUpdate));
  const Generation before = world.OnController([&] { return world.controller().core().generation(); });
  world.Interrupt(1);
  ASSERT_TRUE(world.AwaitIncidents(1));
  world.script().Release(1, 3, Point::kBeforeUpdate);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kResume);
  EXPECT_EQ(world.OnController([&] { return world.controller().core().generation(); }), before);
}

INSTANTIATE_TEST_SUITE_P(Gates, Reconnect, testing::Values(GateMode::kTrainer, GateMode::kControlPlane));

TEST(Reconnect, WhatWasLostWithTheConnectionIsSaidAgain) {
  WorldOptions options;
  options.gate = GateMode::kControlPlane;  // every step needs two messages
  World world(options);
  for (uint64_t step = 2; step <= 5; ++step) world.script().Hold(0, step, Point::kBeforeUpdate);
  world.StartAll();
  for (uint64_t step = 2; step <= 5; ++step) {
    ASSERT_TRUE(world.script().AwaitReached(0, step, Point::kBeforeUpdate)) << world.Story();
    for (int rank = 1; rank < 4; ++rank) world.Interrupt(rank);
    world.script().Release(0, step, Point::kBeforeUpdate);
  }
  ExpectSameAsUndisturbed(world);
}

TEST(Controller, GoneForGoodEndsRunOnEveryRank) {
  WorldOptions options;
  options.loss_timeout = std::chrono::milliseconds(500);
  World world(options);
  world.script().Hold(1, 3, Point::kForward);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(1, 3, Point::kForward));
  world.StopController();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(world.result(rank).code(), StatusCode::kEnded) << world.result(rank).ToString();
    EXPECT_EQ(world.trainer(rank).exit_code(), 1);
    EXPECT_NE(world.result(rank).message().find("no controller"), std::string::npos) << world.result(rank).ToString();
  }
}

}  // namespace
}  // namespace kintsugi::inproc
