// Which updates an error of a certain age makes suspect.
#include "runtime/agent/begun_steps.h"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

TimePoint At(uint64_t step) { return TimePoint(std::chrono::milliseconds(10 * step)); }

// Begun: steps 1 to `begun`, each 10 ms after the one before.
BegunSteps& Until(BegunSteps& steps, uint64_t begun) {
  for (uint64_t step = 1; step <= begun; ++step) steps.Note(Step(step), At(step));
  return steps;
}

ErrorTime When(uint64_t step) { return {ErrorTime::Known::kAt, At(step) + std::chrono::milliseconds(5)}; }

TEST(BegunSteps, AnErrorOfNowMakesNothingSuspect) {
  BegunSteps steps;
  EXPECT_EQ(Until(steps, 10).SuspectFrom({ErrorTime::Known::kNow, {}}, 9, 10), Step());
}

TEST(BegunSteps, OneWithATimeMakesAllUpdatesSinceSuspect) {
  BegunSteps steps;
  Until(steps, 10);
  for (uint64_t during = 1; during <= 9; ++during)
    EXPECT_EQ(steps.SuspectFrom(When(during), 9, 10), Step(during)) << "in step " << during;
  EXPECT_EQ(steps.SuspectFrom(When(10), 9, 10), Step()) << "update 9 was over when step 10 began";
}

TEST(BegunSteps, OneOfUnknownAgeMakesTheNewestSuspect) {
  BegunSteps steps;
  EXPECT_EQ(Until(steps, 10).SuspectFrom({ErrorTime::Known::kUnknown, {}}, 9, 10), Step(9));
}

TEST(BegunSteps, WhatIsOlderThanAllThatIsRememberedMakesEverythingSuspect) {
  BegunSteps steps;
  Until(steps, 200);
  EXPECT_EQ(steps.SuspectFrom(When(190), 199, 200), Step(190));
  EXPECT_EQ(steps.SuspectFrom(When(20), 199, 200), Step(1));
}

TEST(BegunSteps, StepsOfAProcessBeforeThisOneAreNotItsOwn) {
  BegunSteps steps;
  for (uint64_t step = 8; step <= 10; ++step) steps.Note(Step(step), At(step));
  EXPECT_EQ(steps.SuspectFrom(When(1), 9, 10), Step(8)) << "the first that it has taken part in";
}

}  // namespace
}  // namespace kintsugi
