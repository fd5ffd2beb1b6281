// JoiningWatch: who is frozen, who is only slow, and whose silence is the launcher's own.
#include "runtime/launcher/workers/joining_watch.h"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

class JoiningWatchTest : public testing::Test {
 protected:
  JoiningWatchTest() {
    watch_.SetSilence(1s);
    watch_.Look(now_);
  }
  // Looks as often as a pool does until that time has passed; true: it was found frozen on the way, or at its end.
  bool FrozenWithin(Duration time, const JoiningWatch::Seen& seen) {
    for (const TimePoint end = now_ + time; now_ < end;) {
      now_ = now_ + 100ms;
      watch_.Look(now_);
      if (watch_.IsFrozen(Rank(0), seen, now_)) return true;
    }
    return false;
  }
  static JoiningWatch::Seen Stopped(bool stopped) {
    return {.step = 0, .beat = std::nullopt, .stopped = [stopped] { return stopped; }};
  }
  JoiningWatch::Seen BeatAt(TimePoint beat) {
    return {.step = 0, .beat = beat, .stopped = [] { return ADD_FAILURE() << "it beats", false; }};
  }

  JoiningWatch watch_;
  TimePoint now_ = TimePoint() + 1000s;
};

TEST_F(JoiningWatchTest, OneThatBeatIsFrozenAQuarterAfterTheSilenceLimit) {
  const TimePoint beat = now_;
  EXPECT_FALSE(FrozenWithin(1200ms, BeatAt(beat)));
  EXPECT_TRUE(FrozenWithin(100ms, BeatAt(beat)));
}

TEST_F(JoiningWatchTest, OneInItsLoopIsTheControllersToWatch) {
  JoiningWatch::Seen seen = BeatAt(now_);
  seen.step = 1;
  EXPECT_FALSE(FrozenWithin(100s, seen));
}

TEST_F(JoiningWatchTest, OneThatLoadsItsProgramMayTakeAsLongAsItDoes) {
  EXPECT_FALSE(FrozenWithin(100s, Stopped(false)));
}

TEST_F(JoiningWatchTest, OneThatASignalStoppedBeforeItBeatIsFrozen) {
  EXPECT_FALSE(FrozenWithin(1300ms, Stopped(true)));  // the first look found it so
  EXPECT_TRUE(FrozenWithin(100ms, Stopped(true)));
}

TEST_F(JoiningWatchTest, OneThatWasContinuedBeginsAnew) {
  EXPECT_FALSE(FrozenWithin(1s, Stopped(true)));
  EXPECT_FALSE(FrozenWithin(100ms, Stopped(false)));
  EXPECT_FALSE(FrozenWithin(1300ms, Stopped(true)));
}

TEST_F(JoiningWatchTest, AnotherProcessOfTheRankBeginsAnew) {
  EXPECT_FALSE(FrozenWithin(1s, Stopped(true)));
  watch_.Forget(Rank(0));
  EXPECT_FALSE(FrozenWithin(1300ms, Stopped(true)));
}

TEST_F(JoiningWatchTest, TimeInWhichTheLauncherSleptIsNobodysSilence) {
  const TimePoint beat = now_;
  now_ = now_ + 60s;  // no look
  watch_.Look(now_);
  EXPECT_FALSE(watch_.IsFrozen(Rank(0), BeatAt(beat), now_));
  EXPECT_FALSE(FrozenWithin(1200ms, BeatAt(beat)));
  EXPECT_TRUE(FrozenWithin(100ms, BeatAt(beat)));
}

}  // namespace
}  // namespace kintsugi
