#include "runtime/launcher/workers/spare_start_policy.h"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kNow(std::chrono::seconds(1000));

TEST(SpareStartPolicy, StartsNoneBeforeTheRanksThemselves) {
  const SpareStartPolicy policy(1);
  EXPECT_FALSE(policy.MayStart(0, true, kNow));
}

TEST(SpareStartPolicy, WaitsUntilTheRanksComputeButNotForEver) {
  SpareStartPolicy policy(1);
  policy.OnRankStarted(kNow);
  EXPECT_FALSE(policy.MayStart(0, false, kNow));
  EXPECT_TRUE(policy.MayStart(0, true, kNow));
  EXPECT_FALSE(policy.MayStart(0, false, kNow + SpareStartPolicy::kCalmLimit - 1ms));
  EXPECT_TRUE(policy.MayStart(0, false, kNow + SpareStartPolicy::kCalmLimit));
  policy.OnRankStarted(kNow + 5s);  // another one died
  EXPECT_FALSE(policy.MayStart(0, false, kNow + 6s));
}

TEST(SpareStartPolicy, StartsAsManyAsAreWantedAndNoMore) {
  SpareStartPolicy policy(2), none(0);
  policy.OnRankStarted(kNow);
  none.OnRankStarted(kNow);
  EXPECT_TRUE(policy.MayStart(1, true, kNow));
  EXPECT_FALSE(policy.MayStart(2, true, kNow));
  EXPECT_FALSE(none.MayStart(0, true, kNow));
}

TEST(SpareStartPolicy, GivesUpAProgramThatCannotBeASpare) {
  SpareStartPolicy policy(1);
  policy.OnRankStarted(kNow);
  for (int death = 1; death < SpareStartPolicy::kDeathsMax; ++death) {
    policy.OnDeath(10ms);
    EXPECT_TRUE(policy.MayStart(0, true, kNow)) << death;
  }
  policy.OnDeath(10ms);
  EXPECT_TRUE(policy.gave_up());
  EXPECT_FALSE(policy.MayStart(0, true, kNow));
}

TEST(SpareStartPolicy, ForgetsDeathsOnceOneHasProvedItself) {
  SpareStartPolicy policy(1);
  policy.OnRankStarted(kNow);
  for (int round = 0; round < 5; ++round) {
    policy.OnDeath(10ms);
    policy.OnDeath(10ms);
    policy.OnTaken();
  }
  EXPECT_FALSE(policy.gave_up());
  for (int day = 0; day < 5; ++day) policy.OnDeath(24h);  // killed now and then, in a run of weeks
  EXPECT_FALSE(policy.gave_up());
  policy.OnDeath(10ms);
  policy.OnDeath(10ms);
  EXPECT_TRUE(policy.gave_up());
}

}  // namespace
}  // namespace kintsugi
