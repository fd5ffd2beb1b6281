// The small pure parts: gate word, policy, failure detector, rendezvous store.
#include <gtest/gtest.h>

#include "callbacks/state/key.h"
#include "runtime/base/random.h"
#include "runtime/core/detector.h"
#include "runtime/core/gate_word.h"
#include "runtime/core/policy.h"
#include "runtime/core/store_table.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

TimePoint At(Duration since) { return TimePoint(100s) + since; }

TEST(GateWord, UnpacksWhatWasPacked) {
  Random random(7);
  for (int i = 0; i < 1000; ++i) {
    const GateWord word{random.Chance(0.5), static_cast<GateState>(random.Below(4)),
                        Step(random.Next() & GateWord::kStepMask)};
    const GateWord back = GateWord::Unpack(word.Packed());
    EXPECT_EQ(back.locked, word.locked);
    EXPECT_EQ(back.state, word.state);
    EXPECT_EQ(back.step, word.step);
  }
}

TEST(GateWord, LockingTouchesNothingElse) {
  const uint64_t word = GateWord::Pack(GateState::kUpdating, 41);
  const GateWord locked = GateWord::Unpack(word | GateWord::kLockBit);
  EXPECT_TRUE(locked.locked);
  EXPECT_EQ(locked.state, GateState::kUpdating);
  EXPECT_EQ(locked.step, Step(41));
}

TEST(GateWord, NamesEveryState) {
  for (GateState state : {GateState::kCommitted, GateState::kAtGate, GateState::kUpdating, GateState::kTorn})
    EXPECT_NE(GateStateName(state), "unknown");
}

// ---- policy --------------------------------------------------------------------------------------------------------

TEST(Policy, DefaultsAreValid) { EXPECT_TRUE(Policy().Validate().ok()); }

TEST(Policy, RefusesFieldsThatDoNotFit) {
  const auto refused = [](auto change) {
    Policy policy;
    change(policy);
    return policy.Validate().code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](Policy& p) { p.world_size = 0; }));
  EXPECT_TRUE(refused([](Policy& p) { p.max_respawns = -1; }));
  EXPECT_TRUE(refused([](Policy& p) { p.silence = 200ms; }));
  EXPECT_TRUE(refused([](Policy& p) { p.step_timeout = p.silence - 1ms; }));
  EXPECT_TRUE(refused([](Policy& p) { p.join_timeout = p.silence - 1ms; }));
  EXPECT_TRUE(refused([](Policy& p) { p.grace = 0s; }));
  EXPECT_TRUE(refused([](Policy& p) { p.repairs_per_rank = 0; }));
  EXPECT_TRUE(refused([](Policy& p) { p.save_every = 5; }));
  EXPECT_FALSE(refused([](Policy& p) { p.save_every = 5, p.save_directory = "d"; }));
  EXPECT_FALSE(refused([](Policy& p) { p.silence = 300ms; }));
}

TEST(Policy, DerivesEveryLimitFromTheStepTimeout) {
  Policy policy;
  policy.step_timeout = 8s;
  EXPECT_GT(policy.ConfirmWindow(), policy.silence) << "a silent rank must be found before CONFIRM ends";
  EXPECT_GT(policy.LockLimit(), policy.silence) << "a rank that falls silent during LOCK is silent, not late";
  EXPECT_EQ(policy.HandlerLimit(), 8s);
  EXPECT_GE(policy.RepairLimit(), policy.HandlerLimit());
}

// ---- failure detector ----------------------------------------------------------------------------------------------

std::vector<Rank> TickUntil(FailureDetector& detector, Duration from, Duration to, Duration every = 20ms) {
  for (Duration t = from; t <= to; t += every)
    if (const auto silent = detector.OnTick(At(t)); !silent.empty()) return silent;
  return {};
}

TEST(FailureDetector, FindsTheSilentRankAndNoOther) {
  FailureDetector detector(1s);
  detector.Watch(Rank(0), At(0s));
  detector.Watch(Rank(1), At(0s));
  uint64_t count = 0;
  for (Duration t = 0ms; t < 990ms; t += 20ms) {
    detector.OnBeat(Rank(0), ++count, At(t));
    EXPECT_TRUE(detector.OnTick(At(t)).empty());
  }
  EXPECT_EQ(TickUntil(detector, 1000ms, 1040ms), std::vector<Rank>{Rank(1)});
}

TEST(FailureDetector, TakesARepeatedCountForNoSignOfLife) {
  FailureDetector detector(1s);
  detector.Watch(Rank(0), At(0s));
  for (Duration t = 0ms; t < 1s; t += 20ms) {
    detector.OnBeat(Rank(0), 5, At(t));
    (void)detector.OnTick(At(t));
  }
  EXPECT_EQ(TickUntil(detector, 1s, 1100ms), std::vector<Rank>{Rank(0)});
}

TEST(FailureDetector, ALateTickOfItsOwnExtendsEveryDeadline) {
  FailureDetector detector(1s);
  detector.Watch(Rank(0), At(0s));
  (void)detector.OnTick(At(0s));
  // The controller was stopped for a minute; so were, perhaps, the beats on their way to it.
  EXPECT_TRUE(detector.OnTick(At(60s)).empty());
  EXPECT_TRUE(TickUntil(detector, 60s + 20ms, 60s + 400ms).empty());
  EXPECT_EQ(TickUntil(detector, 60s + 420ms, 61s + 100ms), std::vector<Rank>{Rank(0)});
}

TEST(FailureDetector, SlowTicksDelayDetectionButDoNotPreventIt) {
  FailureDetector detector(1s);
  detector.Watch(Rank(0), At(0s));
  EXPECT_EQ(TickUntil(detector, 0s, 10s, 700ms), std::vector<Rank>{Rank(0)});
}

TEST(FailureDetector, ForgetsWhomItIsTold) {
  FailureDetector detector(1s);
  detector.Watch(Rank(0), At(0s));
  detector.Forget(Rank(0));
  detector.OnBeat(Rank(0), 1, At(0s));  // a late beat does not bring it back
  EXPECT_TRUE(TickUntil(detector, 0s, 5s).empty());
}

// ---- store ---------------------------------------------------------------------------------------------------------

Header From(int rank, uint64_t generation) { return {Term{1, 1}, Generation(generation), Rank(rank), Incarnation(1)}; }

TEST(StoreTable, AnswersAReadOnceTheKeyIsThere) {
  StoreTable store;
  (void)store.Advance(Generation(2));
  EXPECT_TRUE(store.Get(From(0, 2), {11, "a"}).empty());
  EXPECT_TRUE(store.Get(From(1, 2), {12, "a"}).empty());
  const auto answers = store.Set(From(2, 2), {"a", {7}});
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].reply.request, 11u);
  EXPECT_EQ(answers[1].rank, Rank(1));
  EXPECT_EQ(answers[1].reply.value, std::vector<uint8_t>{7});
  const auto now = store.Get(From(0, 2), {13, "a"});
  ASSERT_EQ(now.size(), 1u);
  EXPECT_EQ(now[0].reply.code, StatusCode::kOk);
}

TEST(StoreTable, ANewGenerationCancelsWaitsAndForgetsKeys) {
  StoreTable store;
  (void)store.Advance(Generation(2));
  (void)store.Set(From(0, 2), {"a", {7}});
  (void)store.Get(From(1, 2), {5, "b"});
  const auto cancelled = store.Advance(Generation(3));
  ASSERT_EQ(cancelled.size(), 1u);
  EXPECT_EQ(cancelled[0].rank, Rank(1));
  EXPECT_EQ(cancelled[0].reply.code, StatusCode::kCancelled);
  EXPECT_TRUE(store.Get(From(1, 3), {6, "a"}).empty()) << "the key is of the old generation";
  EXPECT_TRUE(store.Advance(Generation(3)).empty());
  EXPECT_TRUE(store.Advance(Generation(1)).empty());
}

TEST(StoreTable, RefusesOtherGenerations) {
  StoreTable store;
  (void)store.Advance(Generation(3));
  (void)store.Set(From(0, 2), {"a", {7}});
  EXPECT_TRUE(store.Get(From(1, 3), {1, "a"}).empty());
  const auto old = store.Get(From(1, 2), {2, "a"});
  ASSERT_EQ(old.size(), 1u);
  EXPECT_EQ(old[0].reply.code, StatusCode::kCancelled);
}

TEST(StoreTable, HasBounds) {
  StoreTable store;
  (void)store.Advance(Generation(1));
  (void)store.Set(From(0, 1), {"big", std::vector<uint8_t>(StoreTable::kValueBytesMax + 1)});
  EXPECT_TRUE(store.Get(From(0, 1), {1, "big"}).empty());
  (void)store.Set(From(0, 1), {std::string(StoreTable::kKeyBytesMax + 1, 'k'), {1}});
  EXPECT_EQ(store.Get(From(0, 1), {2, std::string(StoreTable::kKeyBytesMax + 1, 'k')})[0].reply.code,
            StatusCode::kResourceExhausted);
  for (size_t i = 1; i < StoreTable::kWaitingPerRankMax; ++i) (void)store.Get(From(0, 1), {i + 2, "never"});
  const auto refused = store.Get(From(0, 1), {999'999, "never"});
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].reply.code, StatusCode::kResourceExhausted);
  EXPECT_TRUE(store.Get(From(1, 1), {1, "never"}).empty()) << "one rank's excess is no other's";
}

}  // namespace
}  // namespace kintsugi::core
