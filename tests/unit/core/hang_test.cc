// Hangs: who is told from whom, after how long; and crash loops. The detector alone, then inside the controller.
#include <gtest/gtest.h>

#include "runtime/core/hang_detector.h"
#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

TimePoint At(Duration since) { return TimePoint(100s) + since; }
Progress In(uint64_t step, TrainPhase phase, Activity activity = Activity::kNone) { return {step, phase, activity}; }

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

TEST(HangDetector, AllAtOnePlaceHaveTheLongestLimit) {
  HangDetector hangs = Learnt();
  EXPECT_FALSE(Tick(hangs, 0s, 9900ms));
  const auto hang = hangs.OnTick(At(10s));
  ASSERT_TRUE(hang);
  EXPECT_TRUE(hang->all);
  EXPECT_EQ(hang->ToString(), "every rank stood still for 10.0 s in forward of step 5; a step takes 0.4 s" + kOwnCode);
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
  EXPECT_FALSE(Tick(hangs, 0s, 9900ms)) << "the longest limit";
  const auto hang = Tick(hangs, 9900ms, 10100ms);
  ASSERT_TRUE(hang);
  EXPECT_TRUE(hang->all);
  EXPECT_FALSE(hang->certain);
  EXPECT_EQ(hang->ToString(), "ranks 1, 2, 3 stood still for 10.0 s in backward of step 5; a step takes 0.4 s; rank 0 "
                              "waits in between of step 4 (wait)" + kOwnCode);
}

Progress With(uint64_t step, TrainPhase phase, uint32_t collectives) {
  return {step, phase, Activity::kNone, collectives};
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
  hangs.Start(At(0s));
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

// ---- the controller ------------------------------------------------------------------------------------------------

void Steps(Bench& bench, uint64_t from, uint64_t to) {
  for (uint64_t step = from; step <= to; ++step) {
    for (int r = 0; r < 4; ++r) bench.places[r] = In(step, TrainPhase::kForward);
    bench.Pass(100ms);
  }
}

// Running, with steps of 100 ms learnt; rank 2 stands in the forward pass of step 9, the others wait for it.
void LetRankTwoLag(Bench& bench) {
  Steps(bench, 1, 9);
  bench.CommitAll(8);
  for (int r : {0, 1, 3}) bench.places[r] = In(9, TrainPhase::kGradientSync);
}

Policy HangPolicy() {
  Policy policy = Bench::QuickPolicy(4);
  policy.hang_least = 2s;
  return policy;
}

TEST(Hang, ARankThatComesOutOfItsStepGoesOn) {
  Bench bench(HangPolicy());
  bench.Run();
  LetRankTwoLag(bench);
  bench.Pass(1900ms);
  EXPECT_EQ(bench.core.incidents(), 0u);
  bench.Pass(300ms);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  const IncidentRecord record = bench.All<IncidentClosed>().at(0).record;
  EXPECT_EQ(record.signal, FaultKind::kHang);
  EXPECT_EQ(record.ranks, std::vector<Rank>{Rank(2)});
  EXPECT_EQ(record.rung, Rung::kRetry);
  EXPECT_TRUE(bench.Killed().empty());
}

TEST(Hang, ARankThatDoesNotIsReplaced) {
  Bench bench(HangPolicy());
  bench.Run();
  LetRankTwoLag(bench);
  bench.mute = {2};
  bench.hold = std::nullopt;
  bench.Pass(2200ms);
  EXPECT_EQ(bench.core.phase(), Phase::kLock) << "its agent is muted too";
  bench.Pass(10s);
  EXPECT_EQ(bench.Killed(), std::set<int>{2});
}

TEST(Hang, IsFoundWhereEveryStepEndsWithAComparison) {
  Policy policy = HangPolicy();
  policy.verify_every = 1;
  Bench bench(policy);
  bench.Run();
  for (uint64_t step = 1; step <= 4; ++step) {
    for (int r = 0; r < 4; ++r) bench.places[r] = In(step, TrainPhase::kForward);
    bench.Pass(100ms);
    bench.CommitAll(step);
    for (int r = 0; r < 4; ++r) bench.Say(r, SavePoint{Step(step)});
  }
  for (int r = 0; r < 4; ++r) bench.places[r] = In(5, r == 1 ? TrainPhase::kForward : TrainPhase::kGradientSync);
  bench.Pass(2200ms);
  ASSERT_EQ(bench.All<IncidentClosed>().size(), 1u);
  EXPECT_EQ(bench.All<IncidentClosed>()[0].record.signal, FaultKind::kHang);
  EXPECT_EQ(bench.All<IncidentClosed>()[0].record.ranks, std::vector<Rank>{Rank(1)});
}

TEST(Hang, HangingAtTheSameStepAgainIsNotForgiven) {
  Bench bench(HangPolicy());
  bench.Run();
  LetRankTwoLag(bench);
  for (int r : {0, 1, 3}) bench.places[r] = In(9, TrainPhase::kGate);
  bench.Pass(2200ms);
  ASSERT_EQ(bench.core.incidents(), 1u);
  EXPECT_TRUE(bench.Killed().empty());
  bench.Pass(3600ms);
  EXPECT_EQ(bench.core.incidents(), 1u) << "it has more time there, now that it is known";
  bench.Pass(600ms);
  EXPECT_EQ(bench.core.incidents(), 2u);
  EXPECT_EQ(bench.Killed(), std::set<int>{2});
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kRespawn);
}

// In a pipeline a rank stands still, at an earlier place, because the one that it waits for does.
TEST(Hang, WhoMayWaitForAnotherIsAskedTwice) {
  Bench bench(HangPolicy());
  bench.Run();
  LetRankTwoLag(bench);
  bench.Pass(2200ms);
  bench.Pass(4300ms);
  ASSERT_EQ(bench.core.incidents(), 2u);
  EXPECT_TRUE(bench.Killed().empty());
  bench.Pass(4300ms);
  EXPECT_EQ(bench.Killed(), std::set<int>{2});
}

TEST(Hang, WhoeverLeftItsLoopEarlyIsToBlameAndNotThoseThatWaitForIt) {
  Bench bench(HangPolicy());
  bench.Run();
  Steps(bench, 1, 9);
  for (int i = 0; i < 3; ++i) {
    bench.CommitAll(8);
    bench.Say(1, Finished{Step(8)});
    for (int r : {0, 2, 3}) bench.places[r] = In(9, TrainPhase::kGradientSync);
    bench.Pass(2300ms);
    EXPECT_EQ(bench.core.incidents(), static_cast<uint64_t>(i) + 1);
    EXPECT_EQ(bench.All<IncidentClosed>().back().record.ranks, std::vector<Rank>{Rank(1)});
  }
  EXPECT_TRUE(bench.Killed().empty());
  ASSERT_TRUE(bench.Ended()) << "it does so again and again";
  EXPECT_NE(bench.Ended()->text.find("rank 1 failed 3 times at step 9"), std::string::npos) << bench.Ended()->text;
  EXPECT_NE(bench.Ended()->text.find("its loop ended after step 8"), std::string::npos) << bench.Ended()->text;
}

TEST(Hang, ADeadlockOfAllHasTheLearntLimitToComeOutOfItsStep) {
  Bench bench(HangPolicy());
  bench.Run();
  Steps(bench, 1, 9);
  bench.CommitAll(8);
  bench.hold = Phase::kStop;
  bench.Pass(4s);  // the step timeout: only then is it a deadlock
  ASSERT_EQ(bench.core.phase(), Phase::kStop);
  EXPECT_TRUE(bench.Killed().empty());
  bench.Pass(4s + 2s + 1200ms);  // the stop handler's limit, the learnt one, and the time to say so
  EXPECT_EQ(bench.Killed(), (std::set<int>{0, 1, 2, 3}));
}

TEST(Hang, ADeadlockOfAllIsTriedThreeTimesThenSaved) {
  Bench bench(HangPolicy());
  bench.Run();
  Steps(bench, 1, 9);
  bench.CommitAll(8);
  bench.Pass(30s);
  const auto incidents = bench.All<IncidentClosed>();
  ASSERT_EQ(incidents.size(), 3u);
  EXPECT_EQ(incidents[0].record.rung, Rung::kRetry);
  EXPECT_TRUE(incidents[0].record.ranks.empty()) << "nobody is to blame";
  EXPECT_EQ(incidents[2].record.rung, Rung::kDump);
  EXPECT_TRUE(bench.Killed().empty());
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  EXPECT_NE(bench.Ended()->text.find("deadlock"), std::string::npos) << bench.Ended()->text;
  EXPECT_NE(bench.Ended()->text.find("saved step 8"), std::string::npos) << bench.Ended()->text;
}

TEST(Hang, WhoLeftACollectiveOutIsToBlameAndTheThirdTimeEndsTheRun) {
  Bench bench(HangPolicy());
  bench.Run();
  Steps(bench, 1, 9);
  for (int i = 0; i < 3; ++i) {
    bench.CommitAll(8);
    for (int r : {0, 2, 3}) bench.places[r] = With(9, TrainPhase::kBackward, 1);
    bench.places[1] = With(9, TrainPhase::kGate, 0);
    bench.Pass(2300ms);
    ASSERT_EQ(bench.core.incidents(), static_cast<uint64_t>(i) + 1);
    EXPECT_EQ(bench.All<IncidentClosed>().back().record.ranks, std::vector<Rank>{Rank(1)});
  }
  EXPECT_TRUE(bench.Killed().empty());
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  EXPECT_NE(bench.Ended()->text.find("rank 1 came to the end of step 9 with 0 collectives, rank 0 with 1"),
            std::string::npos)
      << bench.Ended()->text;
}

TEST(Hang, StopWaitsForARankInASection) {
  Bench bench(HangPolicy());
  bench.Run();
  Steps(bench, 1, 9);
  bench.CommitAll(8);
  bench.places[2] = In(9, TrainPhase::kForward, Activity::kSection);
  bench.Pass(20ms);
  bench.hold = Phase::kStop;
  bench.Say(1, FaultReport{.kind = FaultKind::kException, .text = "boom", .step = Step(9)});
  ASSERT_EQ(bench.core.phase(), Phase::kStop);
  bench.hold.reset();
  for (int r : {0, 1, 3}) bench.Say(r, Parked{GateState::kCommitted, Step(8)});
  bench.Pass(100s);
  EXPECT_EQ(bench.core.phase(), Phase::kStop);
  EXPECT_TRUE(bench.Killed().empty());
  bench.Say(2, Parked{GateState::kCommitted, Step(8)});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.Sent<StopOrder>().back().second.activity_limit, 40s);
}

// ---- the end by a rule that was broken, and by tensors that changed ------------------------------------------------

TEST(Refusal, EndsTheRunAtOnceAndSaysWhoAndWhat) {
  Policy policy = HangPolicy();
  policy.save_directory = "saves";
  Bench bench(policy);
  bench.Run();
  Steps(bench, 1, 9);
  bench.CommitAll(8);
  bench.Say(1, FaultReport{.kind = FaultKind::kRefused, .text = "Error: a second update", .step = Step(9)});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  EXPECT_EQ(bench.Ended()->text, "rank 1 ended the run at step 9: Error: a second update");
  EXPECT_TRUE(bench.Orders(Phase::kDump, 0).empty()) << "nothing is saved as if it were good";
}

TEST(Refusal, BeforeAnybodyTrainsIsAStartThatFailed) {
  Bench bench(HangPolicy());
  for (int r = 0; r < 4; ++r) bench.places[r] = In(0, TrainPhase::kForward);
  bench.Run();
  bench.Say(1, FaultReport{.kind = FaultKind::kRefused, .text = "Error: nothing is registered"});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitStartup);
}

TEST(FinishedChanged, EndsWithoutAComparisonAndSaysWhoChangedWhat) {
  Bench bench(HangPolicy());
  bench.Run();
  bench.CommitAll(9);
  for (int r = 0; r < 4; ++r) bench.Say(r, Finished{.step = Step(9), .changed = r == 2});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitSuccess);
  EXPECT_EQ(bench.Ended()->committed, Step(9));
  EXPECT_FALSE(bench.Ended()->final_digest);
  EXPECT_EQ(bench.Ended()->not_compared, "rank 2 changed registered tensors behind the last step, 9");
}

TEST(Inexact, IsToldOnceHoweverOftenItIsSaid) {
  Bench bench(HangPolicy());
  bench.Run();
  for (int i = 0; i < 3; ++i) bench.Say(1, Inexact{"object 'random', step 17"});
  bench.SayLate(2, Inexact{"object 'random', step 17"});
  const auto told = bench.All<InexactNews>();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].rank, Rank(2));
}

// ---- crash loops ---------------------------------------------------------------------------------------------------

void DieAt(Bench& bench, int rank, uint64_t step) {
  for (int r = 0; r < 4; ++r) bench.places[r] = In(step, TrainPhase::kForward);
  bench.CommitAll(step - 1);
  bench.Pass(20ms);
  bench.Exit(rank, "exited with code 9");
}

TEST(CrashLoop, ThreeDeathsAtOneStepEndTheRun) {
  Bench bench(HangPolicy());
  bench.Run();
  DieAt(bench, 1, 5);
  DieAt(bench, 1, 5);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  DieAt(bench, 1, 5);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  EXPECT_NE(bench.Ended()->text.find("rank 1 died 3 times at step 5 (last: exited with code 9)"), std::string::npos)
      << bench.Ended()->text;
}

TEST(CrashLoop, ProgressInBetweenForgives) {
  Bench bench(HangPolicy());
  bench.Run();
  DieAt(bench, 1, 5);
  DieAt(bench, 1, 5);
  DieAt(bench, 1, 6);
  EXPECT_FALSE(bench.Ended());
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(CrashLoop, DifferentRanksAreDifferentFaults) {
  Bench bench(HangPolicy());
  bench.Run();
  for (int r = 0; r < 4; ++r) DieAt(bench, r, 5);
  EXPECT_FALSE(bench.Ended());
}

}  // namespace
}  // namespace kintsugi::core
