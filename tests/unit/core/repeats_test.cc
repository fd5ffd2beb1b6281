// Repeats: counts of what happens at one step in a row.
#include "runtime/core/repeats.h"

#include <gtest/gtest.h>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

FaultReport Failure(uint64_t step, const std::string& text = "boom") {
  return {.kind = FaultKind::kException, .text = text, .step = Step(step)};
}

TEST(Repeats, ThreeDeathsOfOneRankAtOneStepEndHope) {
  Repeats repeats(2);
  repeats.Died(Rank(1), Step(7), "killed");
  repeats.Died(Rank(0), Step(7), "killed");  // another rank's is another row
  repeats.Died(Rank(1), Step(7), "killed");
  EXPECT_EQ(repeats.hopeless(), "");
  repeats.Died(Rank(1), Step(7), "exited with code 3");
  EXPECT_EQ(
      repeats.hopeless(),
      "rank 1 died 3 times at step 7 (last: exited with code 3): this is no fault of the hardware, the program or "
      "its data is");
}

TEST(Repeats, AnotherStepBeginsARowAnew) {
  Repeats repeats(1);
  for (const uint64_t step : {5, 5, 6, 6, 5, 5}) repeats.Died(Rank(0), Step(step), "killed");
  EXPECT_EQ(repeats.hopeless(), "");
}

TEST(Repeats, FailuresCountOnceForEachRankAndStopAndOnlyAlone) {
  Repeats repeats(2);
  for (int stop = 0; stop < 9; ++stop) {
    repeats.Failed(Rank(0), Failure(4));
    repeats.CountFailures(false, true);  // beside a lost process
  }
  EXPECT_EQ(repeats.hopeless(), "");
  for (int stop = 0; stop < 2; ++stop) {
    repeats.Failed(Rank(0), Failure(4, "first"));
    repeats.Failed(Rank(0), Failure(4, "said again"));
    repeats.CountFailures(true, true);
  }
  repeats.CountFailures(true, true);  // nothing was said: nothing is counted
  EXPECT_EQ(repeats.hopeless(), "");
  repeats.Failed(Rank(0), Failure(4, "first"));
  repeats.CountFailures(true, true);
  EXPECT_NE(repeats.hopeless().find("rank 0 failed 3 times at step 4 (last: first)"), std::string::npos)
      << repeats.hopeless();
}

TEST(Repeats, NineFailuresAtOneStepEndHopeWhicheverRankItWas) {
  Repeats repeats(9);
  for (int r = 0; r < 8; ++r) {
    repeats.Failed(Rank(r), Failure(4));
    repeats.CountFailures(true, true);
  }
  EXPECT_EQ(repeats.hopeless(), "");
  repeats.Failed(Rank(8), Failure(4));
  repeats.CountFailures(true, true);
  EXPECT_NE(repeats.hopeless().find("ranks failed 9 times at step 4 (last: rank 8: boom)"), std::string::npos)
      << repeats.hopeless();
}

// An incident with these failures, whose first attempt is counted.
void Incident(Repeats& repeats, const std::vector<std::pair<int, FaultReport>>& failures, bool alone = true) {
  for (const auto& [rank, report] : failures) repeats.Failed(Rank(rank), report);
  repeats.CountFailures(alone, true);
  repeats.CountFailures(alone, false);  // a second attempt at it
}

FaultReport Thrown(uint64_t step, const std::string& signature) {
  return {.kind = FaultKind::kException, .text = "KeyError: 'x'", .step = Step(step), .signature = signature};
}

TEST(Repeats, TheSameExceptionInThreeIncidentsRunningEndsHopeWhereverTheStepsAre) {
  Repeats repeats(2);
  Incident(repeats, {{0, Thrown(4, "KeyError (a.py:3)")}});
  Incident(repeats, {{0, Thrown(5, "ValueError (b.py:9)")}, {1, Thrown(5, "KeyError (a.py:3)")}});
  EXPECT_EQ(repeats.hopeless(), "");
  Incident(repeats, {{1, Thrown(6, "KeyError (a.py:3)")}});
  EXPECT_EQ(repeats.hopeless(),
            "the same exception ended 3 incidents running (last: rank 1 at step 6: KeyError: 'x'): this is no fault of "
            "the hardware, the program or its data is");
}

TEST(Repeats, AnotherKindOfIncidentBetweenForgivesAndNamelessExceptionsAreNotCompared) {
  Repeats repeats(2);
  for (const std::string between : {"other", "nothing", "beside a lost process", "nameless"}) {
    for (uint64_t step = 1; step <= 2; ++step) Incident(repeats, {{0, Thrown(step, "KeyError (a.py:3)")}});
    if (between == "other") Incident(repeats, {{0, Thrown(3, "KeyError (a.py:4)")}});
    if (between == "nothing") Incident(repeats, {});
    if (between == "beside a lost process") Incident(repeats, {{0, Thrown(3, "KeyError (a.py:3)")}}, false);
    if (between == "nameless") Incident(repeats, {{0, Failure(3)}});
  }
  for (uint64_t step = 10; step < 20; ++step) Incident(repeats, {{0, Failure(step)}});
  EXPECT_EQ(repeats.hopeless(), "");
}

TEST(Repeats, TheThirdDamageAtOneStepCostsTheProcessAndTheCountIsAnewForTheNext) {
  Repeats repeats(1);
  std::vector<bool> costs;
  for (int i = 0; i < 6; ++i) costs.push_back(repeats.Damaged(Rank(0), Step(3)));
  EXPECT_EQ(costs, (std::vector<bool>{false, false, true, false, false, true}));
  EXPECT_EQ(repeats.hopeless(), "");
}

TEST(Repeats, WhoMustBeTheOneIsAskedOnceAndElsewhereTwice) {
  Repeats repeats(2);
  EXPECT_FALSE(repeats.WasAsked(Rank(0), Step(3), true));
  EXPECT_TRUE(repeats.WasAsked(Rank(0), Step(3), true));
  EXPECT_FALSE(repeats.WasAsked(Rank(1), Step(3), false));
  EXPECT_FALSE(repeats.WasAsked(Rank(1), Step(3), false));
  EXPECT_TRUE(repeats.WasAsked(Rank(1), Step(3), false));
  EXPECT_FALSE(repeats.WasAsked(Rank(1), Step(4), false)) << "another step is another question";
}

TEST(Repeats, ThreeHangsOfAllAtOneStepAreADeadlockAlsoWhereRanksWereBlamedBetween) {
  Repeats repeats(2);
  repeats.StandsStill(Step(3));
  repeats.StandsStillTogether("all stand");
  repeats.StandsStill(Step(3));  // a rank was blamed
  EXPECT_EQ(repeats.hopeless(), "");
  repeats.StandsStill(Step(3));
  repeats.StandsStillTogether("all stand");
  EXPECT_EQ(repeats.hopeless(), "all stand, 3 times: this is a deadlock in the program");
}

TEST(Repeats, AHandlerThatFailsInTheNextProcessTooEndsHope) {
  Repeats repeats(2);
  for (int times = 0; times < 3; ++times) repeats.HandlerFailed(Rank(1), "rollback", "no table", true);
  repeats.HandlerFailed(Rank(1), "clean", "another handler", true);
  repeats.HandlerFailed(Rank(0), "rollback", "another rank", true);
  EXPECT_EQ(repeats.hopeless(), "");
  repeats.HandlerFailed(Rank(1), "rollback", "no table", true);
  EXPECT_EQ(repeats.hopeless(),
            "the rollback handler of rank 1 failed 4 times (last: no table): this is no fault of the hardware, the "
            "program or its data is");
}

TEST(Repeats, WithoutANextProcessTheThirdFailureOfAHandlerIsTheLast) {
  Repeats repeats(1);
  for (int times = 0; times < 2; ++times) repeats.HandlerFailed(Rank(0), "rollback", "no table", false);
  repeats.HandlersHeld();
  for (int times = 0; times < 2; ++times) repeats.HandlerFailed(Rank(0), "rollback", "no table", false);
  EXPECT_EQ(repeats.hopeless(), "");
  repeats.HandlerFailed(Rank(0), "rollback", "no table", false);
  EXPECT_NE(repeats.hopeless().find("of rank 0 failed 3 times"), std::string::npos) << repeats.hopeless();
}

TEST(Repeats, AHandlerThatFailsOnEveryRankEndsHopeToo) {
  Repeats repeats(9);
  for (int r = 0; r < 9; ++r) {
    EXPECT_EQ(repeats.hopeless(), "");
    repeats.HandlerFailed(Rank(r), "rollback", "no table", true);
  }
  EXPECT_NE(repeats.hopeless().find("the rollback handler failed 9 times on several ranks (last: rank 8: no table)"),
            std::string::npos)
      << repeats.hopeless();
}

TEST(Repeats, TheNinthRetryAtOneStepIsInVain) {
  Repeats repeats(2);
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(repeats.Retried(Step(3), "connection reset"));
  EXPECT_TRUE(repeats.Retried(Step(3), "connection reset"));
  EXPECT_EQ(repeats.hopeless(), "a collective failed 9 times at step 4 with no rank to blame (last: connection reset)");
}

TEST(Repeats, RefuseARankOutsideTheWorldAndAHangThatWasNotCounted) {
  Repeats repeats(2);
  EXPECT_THROW(repeats.Died(Rank(2), Step(1), "killed"), CheckFailure);
  EXPECT_THROW(repeats.Damaged(Rank(-1), Step(1)), CheckFailure);
  EXPECT_THROW(repeats.StandsStillTogether("all stand"), CheckFailure);
}

}  // namespace
}  // namespace kintsugi::core
