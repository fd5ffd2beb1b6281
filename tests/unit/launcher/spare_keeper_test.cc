#include "runtime/launcher/spare_keeper.h"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kNow(std::chrono::seconds(1000));

TEST(SpareKeeper, StartsNoneBeforeTheRanksThemselves) {
  const SpareKeeper keeper(1);
  EXPECT_FALSE(keeper.MayStart(0, true, kNow));
}

TEST(SpareKeeper, WaitsUntilTheRanksComputeButNotForEver) {
  SpareKeeper keeper(1);
  keeper.OnRankStarted(kNow);
  EXPECT_FALSE(keeper.MayStart(0, false, kNow));
  EXPECT_TRUE(keeper.MayStart(0, true, kNow));
  EXPECT_FALSE(keeper.MayStart(0, false, kNow + SpareKeeper::kCalmLimit - 1ms));
  EXPECT_TRUE(keeper.MayStart(0, false, kNow + SpareKeeper::kCalmLimit));
  keeper.OnRankStarted(kNow + 5s);  // another one died
  EXPECT_FALSE(keeper.MayStart(0, false, kNow + 6s));
}

TEST(SpareKeeper, StartsAsManyAsAreWantedAndNoMore) {
  SpareKeeper keeper(2), none(0);
  keeper.OnRankStarted(kNow);
  none.OnRankStarted(kNow);
  EXPECT_TRUE(keeper.MayStart(1, true, kNow));
  EXPECT_FALSE(keeper.MayStart(2, true, kNow));
  EXPECT_FALSE(none.MayStart(0, true, kNow));
}

TEST(SpareKeeper, GivesUpAProgramThatCannotBeASpare) {
  SpareKeeper keeper(1);
  keeper.OnRankStarted(kNow);
  for (int death = 1; death < SpareKeeper::kDeathsMax; ++death) {
    keeper.OnDeath(10ms);
    EXPECT_TRUE(keeper.MayStart(0, true, kNow)) << death;
  }
  keeper.OnDeath(10ms);
  EXPECT_TRUE(keeper.gave_up());
  EXPECT_FALSE(keeper.MayStart(0, true, kNow));
}

TEST(SpareKeeper, ForgetsDeathsOnceOneHasProvedItself) {
  SpareKeeper keeper(1);
  keeper.OnRankStarted(kNow);
  for (int round = 0; round < 5; ++round) {
    keeper.OnDeath(10ms);
    keeper.OnDeath(10ms);
    keeper.OnTaken();
  }
  EXPECT_FALSE(keeper.gave_up());
  for (int day = 0; day < 5; ++day) keeper.OnDeath(24h);  // killed now and then, in a run of weeks
  EXPECT_FALSE(keeper.gave_up());
  keeper.OnDeath(10ms);
  keeper.OnDeath(10ms);
  EXPECT_TRUE(keeper.gave_up());
}

}  // namespace
}  // namespace kintsugi
