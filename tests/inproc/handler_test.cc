// Handlers that fail, throw or ignore their deadline.
#include <gtest/gtest.h>

#include <latch>

#include "tests/inproc/reference.h"

namespace kintsugi::inproc {
namespace {

enum class Way { kReturns, kThrows, kThrowsNumber };

class FailingHandler : public testing::TestWithParam<std::tuple<HandlerKind, Way>> {};

TEST_P(FailingHandler, OnceIsOneMoreAttempt) {
  const auto [failing, way] = GetParam();
  WorldOptions options;
  std::atomic<bool> failed{false};
  options.tweaks[1].handler = [&, f = failing, w = way](HandlerKind kind, HandlerContext& call, ToyTrainer&) -> Status {
    if (kind != f || call.generation < Generation(2) || failed.exchange(true)) return Status::Ok();
    if (w == Way::kThrows) throw std::runtime_error("a handler's own trouble");
    if (w == Way::kThrowsNumber) throw 5;
    return {StatusCode::kInternal, "a handler's own trouble"};
  };
  World world(options);
  world.script().Do(2, 3, Point::kForward, Fault::kThrow);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_TRUE(failed);
  if (failing != HandlerKind::kStop) {
    EXPECT_GE(OnlyIncident(world).attempts, 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, FailingHandler,
                         testing::Combine(testing::Values(HandlerKind::kStop, HandlerKind::kClean,
                                                          HandlerKind::kRebuildGroup, HandlerKind::kRollback),
                                          testing::Values(Way::kReturns, Way::kThrows)));
INSTANTIATE_TEST_SUITE_P(Number, FailingHandler,
                         testing::Combine(testing::Values(HandlerKind::kRollback), testing::Values(Way::kThrowsNumber)));

TEST(Handler, ThatFailsAlwaysCostsItsProcessNotTheRun) {
  WorldOptions options;
  std::atomic<int> lives{0};
  options.tweaks[1].before_registration = [&](ToyTrainer&) { ++lives; };
  options.tweaks[1].handler = [&](HandlerKind kind, HandlerContext& call, ToyTrainer& trainer) -> Status {
    const bool first_life = trainer.join_kind() == JoinKind::kFresh;
    if (kind != HandlerKind::kRollback || call.generation < Generation(2) || !first_life) return Status::Ok();
    return {StatusCode::kInternal, "this process will never do"};
  };
  World world(options);
  world.script().Do(2, 3, Point::kForward, Fault::kThrow);
  world.StartAll();
  ASSERT_TRUE(world.AwaitPhase(core::Phase::kAdmit));
  while (world.transitions().size() < 8 || world.transitions().back().to != core::Phase::kAdmit)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the run's own start also waits for processes
  world.Replace(1);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(lives, 2);
}

TEST(Handler, ThatIgnoresItsDeadlineIsGivenUp) {
  WorldOptions options;
  options.policy.silence = std::chrono::seconds(1);
  options.policy.step_timeout = std::chrono::seconds(3);
  std::latch let_go(1);
  std::atomic<bool> stuck{false};
  options.tweaks[1].handler = [&](HandlerKind kind, HandlerContext& call, ToyTrainer& trainer) {
    if (kind == HandlerKind::kClean && call.generation >= Generation(2) && trainer.join_kind() == JoinKind::kFresh) {
      stuck = true;
      let_go.wait();
    }
    return Status::Ok();
  };
  World world(options);
  world.script().Do(2, 3, Point::kForward, Fault::kThrow);
  world.StartAll();
  while (!stuck) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(world.AwaitPhase(core::Phase::kAdmit));
  world.Replace(1);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kRespawn);
  let_go.count_down();
  EXPECT_EQ(world.trainers()[1]->Wait().code(), StatusCode::kEnded);
}

// Rank 3's handler waits for rank 1's, as in a collective: the stop handlers free it. Neither is given up.
TEST(Handler, ThatIsLateOnceCostsNobodysProcess) {
  WorldOptions options;
  options.policy.step_timeout = std::chrono::seconds(3);
  std::atomic<bool> late{false}, freed{false};
  const auto tweak = [&](HandlerKind kind, HandlerContext& call, ToyTrainer&) {
    if (kind == HandlerKind::kStop && late) freed = true;
    if (kind != HandlerKind::kRollback || call.generation < Generation(2) || freed) return Status::Ok();
    late = true;
    while (!freed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Status(StatusCode::kCancelled, "broken off");
  };
  options.tweaks[1].handler = options.tweaks[3].handler = tweak;
  World world(options);
  world.script().Do(2, 3, Point::kForward, Fault::kThrow);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_TRUE(freed);
  EXPECT_GE(OnlyIncident(world).attempts, 2);
  for (const auto& transition : world.transitions()) EXPECT_NE(transition.to, core::Phase::kAdmit) << "a process was lost";
}

}  // namespace
}  // namespace kintsugi::inproc
