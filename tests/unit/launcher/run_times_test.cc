// Where a run's time went, and what a save's failure says.
#include "runtime/launcher/run/run_times.h"

#include <gtest/gtest.h>

#include "runtime/launcher/run/save_history.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

TimePoint At(Duration since_begin) { return TimePoint() + 1h + since_begin; }

TEST(RunTimes, AnUndisturbedRunIsUsefulButForItsStart) {
  RunTimes times(At(0s));
  times.OnResuming(Step(0), At(2s));
  const TimeAccount account = times.Account(At(10s));
  EXPECT_EQ(account.starting, 2s);
  EXPECT_EQ(account.useful(), 8s);
  EXPECT_DOUBLE_EQ(account.goodput(), 0.8);
}

TEST(RunTimes, ARunThatNeverBeganWasOnlyStarting) {
  RunTimes times(At(0s));
  const TimeAccount account = times.Account(At(3s));
  EXPECT_EQ(account.starting, 3s);
  EXPECT_EQ(account.goodput(), 0);
}

TEST(RunTimes, AnAbandonedStepCountsFromItsBeginning) {
  RunTimes times(At(0s));
  times.OnResuming(Step(0), At(1s));
  for (uint64_t step = 1; step <= 5; ++step) times.OnBegan(Step(step), At(std::chrono::seconds(step)));
  // Struck 0.5 s into step 5; all go on from step 4 half a second later.
  times.OnResuming(Step(4), At(5900ms));
  times.OnBegan(Step(5), At(5950ms));
  times.OnIncident(At(5500ms), At(6s));
  const TimeAccount account = times.Account(At(10s));
  EXPECT_EQ(account.redone, 500ms);
  EXPECT_EQ(account.down, 500ms);
  EXPECT_EQ(account.useful(), 8s);
}

TEST(RunTimes, AFinishedStepCostsOnlyTheStandstill) {
  RunTimes times(At(0s));
  times.OnResuming(Step(0), At(1s));
  for (uint64_t step = 1; step <= 5; ++step) times.OnBegan(Step(step), At(std::chrono::seconds(step)));
  times.OnResuming(Step(5), At(5900ms));
  times.OnIncident(At(5500ms), At(6s));
  EXPECT_EQ(times.Account(At(10s)).redone, 0s);
  EXPECT_EQ(times.Account(At(10s)).down, 500ms);
}

TEST(RunTimes, AnOutageCountsAsItPasses) {
  RunTimes times(At(0s));
  times.OnResuming(Step(0), At(1s));
  for (uint64_t step = 1; step <= 5; ++step) times.OnBegan(Step(step), At(std::chrono::seconds(step)));
  for (const auto now : {60s, 270s}) {
    const TimeAccount account = times.Account(At(now), At(5500ms));
    EXPECT_EQ(account.down, now - 5500ms);
    EXPECT_EQ(account.useful(), 4500ms);
  }
}

TEST(RunTimes, ASaveTakesItsOwnShare) {
  RunTimes times(At(0s));
  times.OnSaving(true, At(0s));  // before the run began: its start
  times.OnSaving(false, At(500ms));
  times.OnResuming(Step(0), At(1s));
  times.OnSaving(false, At(2s));
  times.OnSaving(true, At(3s));
  times.OnSaving(true, At(4s));
  EXPECT_EQ(times.Account(At(4s)).saving, 1s) << "under way";
  times.OnSaving(false, At(5s));
  const TimeAccount account = times.Account(At(10s));
  EXPECT_EQ(account.saving, 2s);
  EXPECT_EQ(account.useful(), 7s);
}

TEST(RunTimes, ASaveThatAFaultEndsIsNotCountedTwice) {
  RunTimes times(At(0s));
  times.OnResuming(Step(0), At(1s));
  for (uint64_t step = 1; step <= 5; ++step) times.OnBegan(Step(step), At(std::chrono::seconds(step)));
  times.OnSaving(true, At(6s));
  times.OnResuming(Step(5), At(8s));
  times.OnIncident(At(7s), At(9s));
  times.OnSaving(false, At(9500ms));
  const TimeAccount account = times.Account(At(10s));
  EXPECT_EQ(account.saving, 1s);
  EXPECT_EQ(account.down, 2s);
  EXPECT_EQ(account.total, account.starting + account.down + account.redone + account.saving + account.useful());
  EXPECT_EQ(account.useful(), 6s);
}

TEST(RunTimes, ASaveWithinWhatIsThrownAwayIsPartOfThat) {
  RunTimes times(At(0s));
  times.OnResuming(Step(0), At(1s));
  for (uint64_t step = 1; step <= 8; ++step) times.OnBegan(Step(step), At(std::chrono::seconds(step)));
  times.OnSaving(true, At(2500ms));  // before step 4, which is the first that is done again: it stays
  times.OnSaving(false, At(3s));
  times.OnSaving(true, At(6s));
  times.OnSaving(false, At(7s));
  times.OnResuming(Step(3), At(9s));
  times.OnIncident(At(8500ms), At(9s));
  const TimeAccount account = times.Account(At(10s));
  EXPECT_EQ(account.saving, 500ms);
  EXPECT_EQ(account.redone, 4500ms);
}

TEST(RunTimes, APauseHasItsOwnShareAndASaveInItIsASave) {
  RunTimes times(At(0s));
  times.OnPaused(true, At(0s));  // before the run began: its start
  times.OnResuming(Step(0), At(1s));
  times.OnPaused(false, At(1s));
  times.OnPaused(true, At(2s));
  EXPECT_EQ(times.Account(At(4s)).paused, 2s) << "under way";
  times.OnPaused(false, At(5s));
  times.OnSaving(true, At(5s));
  times.OnSaving(false, At(6s));
  times.OnPaused(true, At(6s));
  times.OnPaused(false, At(8s));
  const TimeAccount account = times.Account(At(10s));
  EXPECT_EQ(account.paused, 5s);
  EXPECT_EQ(account.saving, 1s);
  EXPECT_EQ(account.useful(), 3s);
  EXPECT_DOUBLE_EQ(account.goodput(), 0.3);
}

TEST(RunTimes, AFaultThatEndsAPauseBeginsToCountThere) {
  RunTimes times(At(0s));
  times.OnResuming(Step(0), At(1s));
  times.OnBegan(Step(1), At(1s));
  times.OnPaused(true, At(2s));
  times.OnResuming(Step(1), At(8s));
  times.OnIncident(At(7s), At(9s));
  times.OnPaused(false, At(9s));
  const TimeAccount account = times.Account(At(10s));
  EXPECT_EQ(account.paused, 5s);
  EXPECT_EQ(account.down, 2s);
  EXPECT_EQ(account.redone, 0s);
  EXPECT_EQ(account.useful(), 2s);
}

TEST(RunTimes, APauseWithinWhatIsThrownAwayIsNoLostTimeOfAFault) {
  RunTimes times(At(0s));
  times.OnResuming(Step(0), At(1s));
  for (uint64_t step = 1; step <= 3; ++step) times.OnBegan(Step(step), At(std::chrono::seconds(step)));
  times.OnPaused(true, At(4s));
  times.OnPaused(false, At(7s));
  times.OnBegan(Step(4), At(7s));
  times.OnResuming(Step(1), At(9s));  // all is thrown away since step 2 began
  times.OnIncident(At(8s), At(9s));
  const TimeAccount account = times.Account(At(10s));
  EXPECT_EQ(account.paused, 3s);
  EXPECT_EQ(account.redone, 3s) << "2 to 4 and 7 to 8";
  EXPECT_EQ(account.down, 1s);
  EXPECT_EQ(account.useful(), 2s);
}

TEST(RunTimes, AReloadCostsAllStepsSinceTheCheckpoint) {
  RunTimes times(At(0s));
  times.OnResuming(Step(0), At(1s));
  for (uint64_t step = 1; step <= 8; ++step) times.OnBegan(Step(step), At(std::chrono::seconds(step)));
  times.OnResuming(Step(3), At(9s));
  times.OnIncident(At(8500ms), At(9s));
  EXPECT_EQ(times.Account(At(20s)).redone, 4500ms) << "since step 4 began";
  // They are begun anew: the next incident looks at these beginnings.
  for (uint64_t step = 4; step <= 6; ++step) times.OnBegan(Step(step), At(std::chrono::seconds(step + 6)));
  times.OnResuming(Step(5), At(13s));
  times.OnIncident(At(12500ms), At(13s));
  EXPECT_EQ(times.Account(At(20s)).redone, 5s);
}

TEST(RunTimes, NoInstantIsCountedTwice) {
  RunTimes times(At(0s));
  times.OnResuming(Step(0), At(1s));
  times.OnBegan(Step(1), At(1s));
  times.OnIncident(At(2s), At(4s));
  times.OnIncident(At(3s), At(5s));  // struck while the one before was being mended
  times.OnIncident(At(3s), At(4s));
  EXPECT_EQ(times.Account(At(10s)).down, 3s);
}

TEST(RunTimes, AMillionStepsAreRememberedRoughly) {
  RunTimes times(At(0s));
  times.OnResuming(Step(0), At(0s));
  for (uint64_t step = 1; step <= 1'000'000; ++step) times.OnBegan(Step(step), At(std::chrono::milliseconds(step)));
  times.OnResuming(Step(500'000), At(1001s));
  times.OnIncident(At(1000s), At(1001s));
  const Duration redone = times.Account(At(1001s)).redone;
  EXPECT_GE(redone, 499s);
  EXPECT_LE(redone, 500s);
  // What began lately is known exactly, and what was thrown away begins anew.
  RunTimes exact(At(0s));
  exact.OnResuming(Step(0), At(0s));
  for (uint64_t step = 1; step <= 1'000'000; ++step) exact.OnBegan(Step(step), At(std::chrono::milliseconds(step)));
  exact.OnResuming(Step(999'999), At(1001s));
  exact.OnIncident(At(1000s + 3ms), At(1001s));
  EXPECT_EQ(exact.Account(At(1001s)).redone, 3ms);
}

TEST(SaveHistory, AFailureTellsTheAgeOfTheLastGoodOne) {
  SaveHistory book;
  EXPECT_NE(book.OnFailed({Step(3), false, Rank(1), "No space left"}, At(1s)).find("last_good_step=none"),
            std::string::npos);
  book.OnMade({Step(6), "here"}, At(10s));
  const std::string line = book.OnFailed({Step(9), false, Rank(1), "No space left"}, At(52s));
  EXPECT_EQ(
      line,
      "event=save_failed step=9 rank=1 why=\"No space left\" last_good_step=6 last_good_age_s=42 failed_so_far=2");
  EXPECT_EQ(book.made, 1u);
  EXPECT_EQ(book.failed, 2u);
}

}  // namespace
}  // namespace kintsugi
