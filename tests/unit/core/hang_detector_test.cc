// HangDetector: who is told from whom, after how long.
#include <gtest/gtest.h>

#include "runtime/core/hang_detector.h"
#include "tests/unit/core/places.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

TimePoint At(Duration since) { return TimePoint(100s) + since; }

const std::string kOwnCode =
    "; where this is code that takes long, run.do or run.activity (Agent::BeginActivity) announces it";

constexpr HangLimits kLimits{5, 1s, 10s, 100s};

// Four ranks that have learnt steps of 400 ms and are in the forward pass of step 5 since At(0).
HangDetector Learnt() {
  HangDetector hangs(kLimits, 4);
  hangs.Start(At(-1600ms));
  for (uint64_t step = 1; step <= 5; ++step)
    for (int r = 0; r < 4; ++r)
      hangs.OnPlace(Rank(r), In(step, TrainPhase::kForward), At(400ms * static_cast<int64_t>(step) - 2s));
  EXPECT_FALSE(hangs.OnTick(At(0s)));
  return hangs;
}

// Ticks often enough for nothing to be taken for our own sleep.
std::optional<Hang> Tick(HangDetector& hangs, Duration from, Duration to) {
  for (Duration at = from; at < to; at += 100ms)
    if (auto hang = hangs.OnTick(At(at))) return hang;
  return hangs.OnTick(At(to));
}

TEST(HangDetector, LearnsTheStep) {
  EXPECT_EQ(Learnt().step_time(), 400ms);
  EXPECT_EQ(Learnt().Limit(), 2s);
  EXPECT_EQ(HangDetector(kLimits, 4).step_time(), std::nullopt);
}

// A beat comes every 250 ms: of steps of 10 ms one in 25 is seen to begin.
TEST(HangDetector, LearnsStepsThatAreShorterThanABeat) {
  HangDetector hangs(kLimits, 1);
  hangs.Start(At(0s));
  for (int64_t beat = 0; beat < 8; ++beat)
    hangs.OnPlace(Rank(0), In(static_cast<uint64_t>(1 + 25 * beat), TrainPhase::kForward), At(250ms * beat));
  EXPECT_EQ(hangs.step_time(), 10ms);
  EXPECT_EQ(hangs.Limit(), 1s) << "never below the least";
}

TEST(HangDetector, AStepThatIsTakenBackSaysNothing) {
  HangDetector hangs(kLimits, 1);
  hangs.Start(At(0s));
  for (int64_t at = 0; at < 8; ++at)
    hangs.OnPlace(Rank(0), In(static_cast<uint64_t>(20 - at), TrainPhase::kForward), At(400ms * at));
  EXPECT_EQ(hangs.step_time(), std::nullopt);
}

TEST(HangDetector, TheOneTheOthersWaitForHangs) {
  HangDetector hangs = Learnt();
  for (int r : {0, 1, 3}) hangs.OnPlace(Rank(r), In(5, TrainPhase::kGradientSync), At(100ms));
  EXPECT_FALSE(Tick(hangs, 0s, 1999ms));
  const auto hang = hangs.OnTick(At(2s));
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{Rank(2)});
  EXPECT_FALSE(hang->all);
  EXPECT_EQ(
      hang->ToString(),
      "rank 2 stood still for 2.0 s in forward of step 5; a step takes 0.4 s; others wait in gradient-sync of step 5" +
          kOwnCode);
}

TEST(HangDetector, WhoeverMovesAtTheEarliestPlaceDoesNotHang) {
  HangDetector hangs = Learnt();
  for (int r : {0, 1}) hangs.OnPlace(Rank(r), In(5, TrainPhase::kGradientSync), At(100ms));
  hangs.OnPlace(Rank(2), In(5, TrainPhase::kBackward), At(1500ms));
  hangs.OnPlace(Rank(3), In(5, TrainPhase::kBackward), At(200ms));
  EXPECT_FALSE(Tick(hangs, 0s, 3400ms)) << "rank 2 got there late, and rank 3 may wait for it";
  const auto hang = Tick(hangs, 3400ms, 3500ms);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, (std::vector<Rank>{Rank(2), Rank(3)}));
}

TEST(HangDetector, AllAtOnePlaceHaveTheLearntLimitToo) {
  HangDetector hangs = Learnt();
  EXPECT_FALSE(Tick(hangs, 0s, 1900ms));
  const auto hang = hangs.OnTick(At(2s));
  ASSERT_TRUE(hang);
  EXPECT_TRUE(hang->all);
  EXPECT_EQ(hang->ToString(), "every rank stood still for 2.0 s in forward of step 5; a step takes 0.4 s" + kOwnCode);
}

TEST(HangDetector, TheLimitHasBounds) {
  HangDetector quick({5, 3s, 10s, 100s}, 4);
  quick.Start(At(0s));
  for (uint64_t step = 1; step <= 5; ++step)
    for (int r = 0; r < 4; ++r)
      quick.OnPlace(Rank(r), In(step, TrainPhase::kForward), At(10ms * static_cast<int64_t>(step)));
  EXPECT_EQ(quick.Limit(), 3s);
  HangDetector slow({5, 3s, 10s, 100s}, 4);
  slow.Start(At(0s));
  for (uint64_t step = 1; step <= 5; ++step)
    for (int r = 0; r < 4; ++r)
      slow.OnPlace(Rank(r), In(step, TrainPhase::kForward), At(7s * static_cast<int64_t>(step)));
  EXPECT_EQ(slow.Limit(), 10s);
}

TEST(HangDetector, AnActivityHasItsOwnLimit) {
  HangDetector hangs = Learnt();
  for (int r : {0, 1, 3}) hangs.OnPlace(Rank(r), In(5, TrainPhase::kGradientSync), At(100ms));
  hangs.OnPlace(Rank(2), In(5, TrainPhase::kForward, Activity::kEval), At(100ms));
  EXPECT_FALSE(Tick(hangs, 0s, 100s));
  const auto hang = Tick(hangs, 100s, 100100ms);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{Rank(2)});
  EXPECT_NE(hang->ToString().find("forward of step 5 (eval)"), std::string::npos) << hang->ToString();
}

TEST(HangDetector, ASectionIsNoHangNorIsWaitingForIt) {
  HangDetector hangs = Learnt();
  hangs.OnPlace(Rank(2), In(5, TrainPhase::kForward, Activity::kSection), At(100ms));
  for (int r : {0, 1}) hangs.OnPlace(Rank(r), In(5, TrainPhase::kGradientSync), At(100ms));
  EXPECT_FALSE(Tick(hangs, 0s, 5000s));
  hangs.OnPlace(Rank(2), In(5, TrainPhase::kForward), At(5000s));
  EXPECT_FALSE(Tick(hangs, 5000100ms, 5001900ms)) << "those that waited for it have their time anew";
  const auto hang = Tick(hangs, 5001900ms, 5002100ms);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, (std::vector<Rank>{Rank(2), Rank(3)}));
}

TEST(HangDetector, BehindTheCommitNoLearntLimitCounts) {
  for (const TrainPhase phase : {TrainPhase::kParamSync, TrainPhase::kBetween}) {
    HangDetector hangs = Learnt();
    hangs.OnPlace(Rank(2), In(5, phase), At(0s));
    for (int r : {0, 1, 3}) hangs.OnPlace(Rank(r), In(6, TrainPhase::kGate), At(0s));
    EXPECT_FALSE(Tick(hangs, 0s, 99900ms));
    const auto hang = Tick(hangs, 99900ms, 100100ms);
    ASSERT_TRUE(hang);
    EXPECT_EQ(hang->ranks, std::vector<Rank>{Rank(2)});
  }
}

TEST(HangDetector, WhoStoodStillAtAStepHasEightTimesTheLimitThereUpToTheMost) {
  HangDetector hangs({5, 1s, 60s, 100s}, 4);
  hangs.Start(At(-1600ms), Step(0));
  for (uint64_t step = 1; step <= 5; ++step)
    for (int r = 0; r < 4; ++r)
      hangs.OnPlace(Rank(r), In(step, TrainPhase::kForward), At(400ms * static_cast<int64_t>(step) - 2s));
  EXPECT_EQ(hangs.LimitAt(5), 2s);
  hangs.Grow(5);
  EXPECT_EQ(hangs.LimitAt(5), 16s);
  EXPECT_EQ(hangs.LimitAt(6), 2s) << "elsewhere nothing is known against it";
  for (int r : {0, 1, 3}) hangs.OnPlace(Rank(r), In(5, TrainPhase::kGradientSync), At(100ms));
  EXPECT_FALSE(Tick(hangs, 0s, 15900ms));
  EXPECT_TRUE(Tick(hangs, 15900ms, 16100ms));
  hangs.Grow(5);
  EXPECT_EQ(hangs.LimitAt(5), 60s);
  hangs.Grow(7);
  EXPECT_EQ(hangs.LimitAt(5), 2s);
}

TEST(HangDetector, RanksThatWaitForEachOtherAtTwoStepsAreTheHangOfAll) {
  HangDetector hangs = Learnt();
  hangs.OnPlace(Rank(0), In(4, TrainPhase::kBetween, Activity::kWait), At(0s));
  for (int r : {1, 2, 3}) hangs.OnPlace(Rank(r), In(5, TrainPhase::kBackward), At(0s));
  EXPECT_FALSE(Tick(hangs, 0s, 1900ms));
  const auto hang = Tick(hangs, 1900ms, 2100ms);
  ASSERT_TRUE(hang);
  EXPECT_TRUE(hang->all);
  EXPECT_FALSE(hang->certain);
  EXPECT_EQ(hang->ToString(), "ranks 1, 2, 3 stood still for 2.0 s in backward of step 5; a step takes 0.4 s; rank 0 "
                              "waits in between of step 4 (wait)" + kOwnCode);
}

TEST(HangDetector, WhoIsPastACollectiveWithoutHavingEnteredItIsTheOneThatIsWaitedFor) {
  HangDetector hangs = Learnt();
  for (int r = 0; r < 4; ++r) hangs.OnPlace(Rank(r), With(5, TrainPhase::kUpdate, 1), At(0s));
  for (int r = 0; r < 4; ++r) hangs.OnPlace(Rank(r), With(6, TrainPhase::kForward, 0), At(400ms));
  for (int r : {0, 2, 3}) hangs.OnPlace(Rank(r), With(6, TrainPhase::kBackward, 1), At(400ms));
  hangs.OnPlace(Rank(1), With(6, TrainPhase::kGate, 0), At(400ms));
  const auto hang = Tick(hangs, 400ms, 3s);
  ASSERT_TRUE(hang);
  ASSERT_EQ(hang->short_of.size(), 1u);
  EXPECT_EQ(hang->short_of[0].rank, Rank(1));
  EXPECT_EQ(hang->ShortOfText(), "rank 1 came to the end of step 6 with 0 collectives, rank 0 with 1");
}

TEST(HangDetector, ARankThatNeverHasSoManyIsShortOfNothing) {
  HangDetector hangs = Learnt();
  for (int r = 0; r < 4; ++r) hangs.OnPlace(Rank(r), With(5, TrainPhase::kUpdate, r == 1 ? 2 : 7), At(0s));
  for (int r = 0; r < 4; ++r) hangs.OnPlace(Rank(r), With(6, TrainPhase::kForward, 0), At(400ms));
  for (int r : {0, 2, 3}) hangs.OnPlace(Rank(r), With(6, TrainPhase::kBackward, 7), At(400ms));
  hangs.OnPlace(Rank(1), With(6, TrainPhase::kGate, 2), At(400ms));
  const auto hang = Tick(hangs, 400ms, 3s);
  ASSERT_TRUE(hang);
  EXPECT_TRUE(hang->short_of.empty()) << "a stage of a pipeline";
}

TEST(HangDetector, AStepWithAnActivityTeachesNothing) {
  HangDetector hangs = Learnt();
  for (int r = 0; r < 4; ++r) {
    hangs.OnPlace(Rank(r), In(5, TrainPhase::kForward, Activity::kCompile), At(100ms));
    hangs.OnPlace(Rank(r), In(5, TrainPhase::kForward), At(60s));
    hangs.OnPlace(Rank(r), In(6, TrainPhase::kForward), At(61s));
  }
  EXPECT_EQ(hangs.step_time(), 400ms);
}

TEST(HangDetector, TheFirstStepAfterAStartHasTheLongestLimit) {
  HangDetector hangs = Learnt();
  EXPECT_EQ(hangs.StepLimit(Rank(2)), hangs.Limit());
  hangs.Start(At(0s));
  EXPECT_EQ(hangs.StepLimit(Rank(2)), 10s);
  for (int r : {0, 1, 3}) hangs.OnPlace(Rank(r), In(5, TrainPhase::kGradientSync), At(100ms));
  EXPECT_FALSE(Tick(hangs, 0s, 9900ms));
  EXPECT_TRUE(Tick(hangs, 9900ms, 10s));
}

TEST(HangDetector, TheFirstStepAfterAStartIsLearntToo) {
  HangDetector hangs(kLimits, 2);
  hangs.Start(At(0s), Step(0));
  for (uint64_t step = 1; step <= 6; ++step)  // the first one takes 900 ms, the others 400 ms
    for (int r = 0; r < 2; ++r)
      hangs.OnPlace(Rank(r), In(step, TrainPhase::kForward), At(step == 1 ? 100ms : 100ms + 400ms * static_cast<int64_t>(step)));
  hangs.Start(At(10s), Step(5));
  EXPECT_EQ(hangs.StepLimit(Rank(1)), 4500ms);
  hangs.OnTick(At(10s));
  hangs.OnPlace(Rank(0), In(6, TrainPhase::kGradientSync), At(10s));
  EXPECT_FALSE(Tick(hangs, 10s, 14400ms));
  const auto hang = Tick(hangs, 14400ms, 14700ms);
  ASSERT_TRUE(hang) << "five times the first step's 900 ms";
  EXPECT_EQ(hang->ranks, std::vector<Rank>{Rank(1)});
}

TEST(HangDetector, WhoWaitsForANeighbourDoesNotHang) {
  HangDetector hangs = Learnt();
  hangs.OnPlace(Rank(0), In(5, TrainPhase::kForward, Activity::kWait), At(0s));
  hangs.OnPlace(Rank(1), In(5, TrainPhase::kForward, Activity::kWait), At(0s));
  hangs.OnPlace(Rank(2), In(5, TrainPhase::kBackward), At(0s));
  hangs.OnPlace(Rank(3), In(5, TrainPhase::kGradientSync), At(0s));
  const auto hang = Tick(hangs, 0s, 3s);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{Rank(2)}) << "two stand earlier, and say that they wait";
}

TEST(HangDetector, IsCertainOnlyWhereAllOthersAreInTheGate) {
  HangDetector hangs = Learnt();
  for (int r : {0, 1, 3}) hangs.OnPlace(Rank(r), In(5, TrainPhase::kGate), At(0s));
  const auto hang = Tick(hangs, 0s, 3s);
  ASSERT_TRUE(hang);
  EXPECT_TRUE(hang->certain);
  hangs = Learnt();
  for (int r : {0, 1, 3}) hangs.OnPlace(Rank(r), In(5, TrainPhase::kGradientSync), At(0s));
  const auto other = Tick(hangs, 0s, 3s);
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->certain);
}

TEST(HangDetector, NothingLearntIsTheLongestWait) {
  HangDetector hangs(kLimits, 2);
  hangs.Start(At(0s));
  hangs.OnPlace(Rank(1), In(1, TrainPhase::kGradientSync), At(1s));
  EXPECT_FALSE(Tick(hangs, 0s, 99s));
  EXPECT_TRUE(Tick(hangs, 99s, 100s));
}

TEST(HangDetector, OurOwnSleepDoesNotCount) {
  HangDetector hangs = Learnt();
  for (int r : {0, 1, 3}) hangs.OnPlace(Rank(r), In(5, TrainPhase::kGradientSync), At(100ms));
  EXPECT_FALSE(Tick(hangs, 0s, 1s));
  EXPECT_FALSE(hangs.OnTick(At(61s))) << "a minute without a tick is ours";
  EXPECT_TRUE(Tick(hangs, 61100ms, 62100ms));
}

TEST(HangDetector, WhoWaitsOutsideItsLoopCannotHang) {
  HangDetector hangs = Learnt();
  hangs.OnIdle(Rank(2), At(0s));
  for (int r : {0, 1, 3}) hangs.OnPlace(Rank(r), In(6, TrainPhase::kForward), At(400ms));
  const auto hang = Tick(hangs, 0s, 3s);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, (std::vector<Rank>{Rank(0), Rank(1), Rank(3)}));
  hangs.OnActive(Rank(2), At(3s));
  EXPECT_FALSE(hangs.OnTick(At(3100ms)));
}

TEST(HangDetector, LearnsWhereEveryStepEndsAtASavePoint) {
  HangDetector hangs(kLimits, 2);
  hangs.Start(At(0s));
  for (int step = 1; step <= 4; ++step)
    for (int r = 0; r < 2; ++r) {
      const Duration begin = 60s * step;  // comparing and saving take long, and are no part of it
      hangs.OnActive(Rank(r), At(begin));
      hangs.OnPlace(Rank(r), In(static_cast<uint64_t>(step), TrainPhase::kForward), At(begin));
      hangs.OnPlace(Rank(r), In(static_cast<uint64_t>(step), TrainPhase::kParamSync), At(begin + 300ms));
      hangs.OnIdle(Rank(r), At(begin + 400ms));
    }
  EXPECT_EQ(hangs.step_time(), 400ms);
  for (int r = 0; r < 2; ++r) hangs.OnActive(Rank(r), At(300s));
  hangs.OnTick(At(300s));
  hangs.OnPlace(Rank(0), In(5, TrainPhase::kGradientSync), At(300s));
  hangs.OnPlace(Rank(1), In(5, TrainPhase::kForward), At(300s));
  EXPECT_FALSE(Tick(hangs, 300s, 301900ms));
  const auto hang = Tick(hangs, 301900ms, 302100ms);
  ASSERT_TRUE(hang) << "it is no first step: what was learnt holds";
  EXPECT_EQ(hang->ranks, std::vector<Rank>{Rank(1)});
}

TEST(HangDetector, CanBeSwitchedOff) {
  HangDetector hangs({0, 1s, 10s, 100s}, 2);
  hangs.Start(At(0s));
  EXPECT_FALSE(Tick(hangs, 0s, 200s));
  EXPECT_FALSE(hangs.StepLimit(Rank(0)));
}

TEST(HangDetector, TheGateWordSaysWhatNoMarkSays) {
  const auto place = [](TrainPhase marked, GateState state, uint64_t step) {
    return PlaceOf(PackProgress(5, marked), GateWord{true, state, Step(step)});
  };
  EXPECT_EQ(place(TrainPhase::kForward, GateState::kCommitted, 4), In(5, TrainPhase::kForward));
  EXPECT_EQ(place(TrainPhase::kForward, GateState::kAtGate, 5), In(5, TrainPhase::kGate));
  EXPECT_EQ(place(TrainPhase::kForward, GateState::kUpdating, 5), In(5, TrainPhase::kUpdate));
  EXPECT_EQ(place(TrainPhase::kUpdate, GateState::kCommitted, 5), In(5, TrainPhase::kParamSync));
  EXPECT_EQ(place(TrainPhase::kBetween, GateState::kCommitted, 5), In(5, TrainPhase::kBetween));
  EXPECT_EQ(PlaceOf(0, GateWord{}).step, 0u);
  // Marked to come to the gate, and not in it: the others wait there for this one.
  EXPECT_EQ(place(TrainPhase::kGate, GateState::kCommitted, 4), In(5, TrainPhase::kGradientSync));
  EXPECT_EQ(place(TrainPhase::kGate, GateState::kAtGate, 5), In(5, TrainPhase::kGate));
}

}  // namespace
}  // namespace kintsugi::core
