#include "integrations/examples/byte_lm/hold.h"

#include <gtest/gtest.h>

namespace kintsugi::byte_lm {
namespace {

TEST(Hold, ReadsPointRanksAndStep) {
  const auto hold = ParseHold("gate:0,13@5");
  ASSERT_TRUE(hold.ok()) << hold.status().message();
  EXPECT_EQ(hold->point, Hold::Point::kGate);
  EXPECT_EQ(hold->ranks, (std::vector<Rank>{Rank(0), Rank(13)}));
  EXPECT_EQ(hold->step, Step(5));
  EXPECT_EQ(ParseHold("update:1@1")->point, Hold::Point::kUpdate);
  EXPECT_EQ(ParseHold("gradient-sync:1@1")->point, Hold::Point::kGradientSync);
}

TEST(Hold, RefusesWhatIsMalformedWithTheGrammar) {
  for (const char* text : {"", "gate", "gate:", "gate:@", "gate:0@", "gate:0@0", "gate:@5", "gate:0,@5", "gate:-1@5", "gate:0@5x",
                           "gate@5:0", "door:0@5", "gate:99999999999@5", "gate:0 @5"}) {
    const auto hold = ParseHold(text);
    ASSERT_FALSE(hold.ok()) << text;
    EXPECT_EQ(hold.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(hold.status().message().find("gate:0,1@5"), std::string::npos) << text;
  }
}

TEST(Hold, KeepsItsOwnRankBackOnce) {
  const Hold hold{Hold::Point::kGate, {Rank(0), Rank(2)}, Step(5)};
  Holds other(Rank(1), {hold}), mine(Rank(2), {hold});
  EXPECT_FALSE(other.Take(Hold::Point::kGate, Step(5)));
  EXPECT_FALSE(mine.Take(Hold::Point::kGate, Step(4)));
  EXPECT_FALSE(mine.Take(Hold::Point::kUpdate, Step(5)));
  EXPECT_TRUE(mine.Take(Hold::Point::kGate, Step(5)));
  EXPECT_FALSE(mine.Take(Hold::Point::kGate, Step(5)));
  Holds cleared(Rank(2), {hold});
  cleared.Clear();
  EXPECT_FALSE(cleared.Take(Hold::Point::kGate, Step(5)));
}

}  // namespace
}  // namespace kintsugi::byte_lm
