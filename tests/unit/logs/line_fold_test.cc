// Lines that come again and again within one second.
#include "tools/logs/line_fold.h"

#include <gtest/gtest.h>

namespace kintsugi::logs {
namespace {

using std::chrono::milliseconds;

TimePoint At(int ms) { return TimePoint(milliseconds(1000 + ms)); }

TEST(LineFold, TenIdenticalLinesWithinASecondAreOneWithACount) {
  LineFold fold;
  EXPECT_TRUE(fold.Passes(LogLevel::kInfo, "event=x", At(0)));
  for (int i = 1; i < 10; ++i) EXPECT_FALSE(fold.Passes(LogLevel::kInfo, "event=x", At(i * 100)));
  EXPECT_EQ(fold.next(), At(1000));
  EXPECT_TRUE(fold.TakeDue(At(999)).empty());
  EXPECT_EQ(fold.TakeDue(At(1000)), (std::vector<LineFold::Line>{{LogLevel::kInfo, "event=x repeated=9"}}));
  EXPECT_EQ(fold.next(), std::nullopt);
  EXPECT_TRUE(fold.Passes(LogLevel::kInfo, "event=x", At(1001))) << "a new second";
}

TEST(LineFold, OthersPassBetweenAndOneThatCameOnceLeavesNothing) {
  LineFold fold;
  EXPECT_TRUE(fold.Passes(LogLevel::kInfo, "event=x", At(0)));
  EXPECT_TRUE(fold.Passes(LogLevel::kInfo, "event=y", At(1)));
  EXPECT_TRUE(fold.Passes(LogLevel::kWarning, "event=x", At(2))) << "of another level";
  EXPECT_FALSE(fold.Passes(LogLevel::kInfo, "event=x", At(3)));
  EXPECT_EQ(fold.TakeDue(At(5000)), (std::vector<LineFold::Line>{{LogLevel::kInfo, "event=x repeated=1"}}));
}

TEST(LineFold, BeyondWhatItRemembersAllPass) {
  LineFold fold;
  for (size_t i = 0; i < LineFold::kLinesMax; ++i) EXPECT_TRUE(fold.Passes(LogLevel::kInfo, std::to_string(i), At(0)));
  EXPECT_TRUE(fold.Passes(LogLevel::kInfo, "more", At(1)));
  EXPECT_TRUE(fold.Passes(LogLevel::kInfo, "more", At(2)));
  EXPECT_FALSE(fold.Passes(LogLevel::kInfo, "0", At(3)));
}

}  // namespace
}  // namespace kintsugi::logs
