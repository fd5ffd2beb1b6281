// AgentCore: what a rank says of its objects, of tensors that changed at the end, and of what is inexact.
#include <gtest/gtest.h>

#include "tests/unit/core/agent_bench.h"

namespace kintsugi::core {
namespace {

TEST(Agent, WhoChangedItsTensorsBehindTheLastStepSaysSoAndOffersNothing) {
  AgentBench bench;
  bench.Start();
  const auto finished = Said<Finished>(bench.Do(TrainerParked{Outcome::kFinishedChanged, Committed(7), {}}));
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_TRUE(finished[0].changed);
  bench.Order(LockOrder{}, 5);
  const auto locked = Said<LockReply>(bench.Do(GateLocked{Committed(7)}));
  ASSERT_EQ(locked.size(), 1u);
  EXPECT_FALSE(locked[0].valid);
}

TEST(Agent, SaysWhetherItsPartnersLackItsObjectsUntilTheyHaveThemAgain) {
  AgentBench bench;
  bench.Start();
  EXPECT_TRUE(Said<SavePoint>(bench.Do(TrainerAtSavePoint{Step(7), true})).at(0).objects_ahead);
  bench.Order(LockOrder{}, 5);
  bench.Do(GateLocked{Committed(7)});
  EXPECT_TRUE(Said<Parked>(bench.Order(StopOrder{Step(7), true}, 5)).at(0).objects_ahead);
  bench.Complete(Phase::kRollback, 5, 7);
  bench.Order(LockOrder{}, 6);
  bench.Do(GateLocked{Committed(7)});
  EXPECT_FALSE(Said<Parked>(bench.Order(StopOrder{Step(7), true}, 6)).at(0).objects_ahead);
}

TEST(Agent, TellsWhatIsInexactAgainOnANewConnection) {
  AgentBench bench;
  bench.Start();
  EXPECT_EQ(Said<Inexact>(bench.Do(InexactNoted{"object 'random', step 17"})).size(), 1u);
  EXPECT_EQ(Said<Inexact>(bench.Do(Connected{Term{4, 1}})).size(), 1u);
}

}  // namespace
}  // namespace kintsugi::core
