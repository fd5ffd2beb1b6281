#include "runtime/launcher/restart_policy.h"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

constexpr Duration kShort = std::chrono::seconds(10);

TEST(RestartPolicy, BeginsAgainOnlyWhatWasSavedAndNotAskedToEnd) {
  for (const auto& [exit_code, asked] : {std::pair{1, false}, {2, false}, {3, false}, {75, true}}) {
    RestartPolicy policy(5);
    const auto decision = policy.OnEnd(exit_code, asked, kShort);
    EXPECT_FALSE(decision.after) << exit_code;
    EXPECT_FALSE(decision.why_not.empty()) << exit_code;
  }
  EXPECT_TRUE(RestartPolicy(5).OnEnd(75, false, kShort).after);
}

TEST(RestartPolicy, SaysNothingWhereNobodyExpectsAnotherStart) {
  EXPECT_EQ(RestartPolicy(5).OnEnd(0, false, kShort).why_not, "");
  EXPECT_EQ(RestartPolicy(0).OnEnd(75, false, kShort).why_not, "");
  EXPECT_FALSE(RestartPolicy(0).OnEnd(75, false, kShort).after);
}

TEST(RestartPolicy, PausesLongerFromOneShortStartToTheNext) {
  RestartPolicy policy(20);
  Duration before{};
  for (int start = 0; start < 6; ++start) {
    const auto decision = policy.OnEnd(75, false, kShort);
    ASSERT_TRUE(decision.after);
    EXPECT_EQ(*decision.after, start == 0 ? RestartPolicy::kShortestPause : 2 * before);
    before = *decision.after;
  }
  EXPECT_EQ(policy.OnEnd(75, false, kShort).after, RestartPolicy::kLongestPause);
  EXPECT_EQ(policy.OnEnd(75, false, RestartPolicy::kLasted).after, RestartPolicy::kShortestPause);
}

TEST(RestartPolicy, AStartThatNobodyCameToIsFollowedSoonByTheNext) {
  RestartPolicy policy(4);
  for (int start = 0; start < 3; ++start) EXPECT_EQ(policy.OnNobodyCame().after, RestartPolicy::kShortestPause);
  EXPECT_EQ(policy.OnEnd(75, false, kShort).after, RestartPolicy::kShortestPause) << "pauses have not grown";
  EXPECT_FALSE(policy.OnNobodyCame().after) << "each counts";
  EXPECT_FALSE(RestartPolicy(0).OnNobodyCame().after);
  EXPECT_EQ(RestartPolicy(0).OnNobodyCame().why_not, "");
}

TEST(RestartPolicy, GivesUpAfterSoMany) {
  RestartPolicy policy(2);
  EXPECT_TRUE(policy.OnEnd(75, false, kShort).after);
  EXPECT_TRUE(policy.OnEnd(75, false, kShort).after);
  const auto decision = policy.OnEnd(75, false, kShort);
  EXPECT_FALSE(decision.after);
  EXPECT_NE(decision.why_not.find("2 times"), std::string::npos) << decision.why_not;
  EXPECT_EQ(policy.restarts(), 2);
}

}  // namespace
}  // namespace kintsugi
