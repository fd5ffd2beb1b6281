#include "runtime/launcher/run/step_times.h"

#include <gtest/gtest.h>

#include <numeric>

namespace kintsugi {
namespace {

TimePoint At(int milliseconds) { return TimePoint(std::chrono::milliseconds(milliseconds)); }
uint64_t Timed(const StepTimes& steps) {
  const auto& counts = steps.seconds().counts();
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

TEST(StepTimes, TimesAStepFromItsFirstBeginningToTheNextOnes) {
  StepTimes steps;
  steps.OnBegan(Step(), At(0));  // a process that has begun none
  steps.OnBegan(Step(1), At(10));
  steps.OnBegan(Step(1), At(12));  // another rank
  steps.OnBegan(Step(2), At(40));
  steps.OnBegan(Step(1), At(41));  // one that is late
  EXPECT_EQ(steps.begun(), 2u);
  EXPECT_EQ(Timed(steps), 1u);
  EXPECT_DOUBLE_EQ(steps.seconds().sum(), 0.030);
}

TEST(StepTimes, LeaveOutWhatAnIncidentInterruptedAndCountItOnce) {
  StepTimes steps;
  for (int step = 1; step <= 3; ++step) steps.OnBegan(Step(static_cast<uint64_t>(step)), At(10 * step));
  steps.OnResuming();
  steps.OnBegan(Step(2), At(5000));  // done again
  steps.OnBegan(Step(3), At(5010));
  steps.OnBegan(Step(4), At(5020));
  EXPECT_EQ(steps.begun(), 4u);
  EXPECT_EQ(Timed(steps), 4u);
  EXPECT_DOUBLE_EQ(steps.seconds().sum(), 0.040);
}

TEST(StepTimes, DoNotTimeStepsThatWereNotSeen) {
  StepTimes steps;
  steps.OnBegan(Step(1), At(10));
  steps.OnBegan(Step(4), At(40));
  EXPECT_EQ(steps.begun(), 2u);
  EXPECT_EQ(Timed(steps), 0u);
}

}  // namespace
}  // namespace kintsugi
