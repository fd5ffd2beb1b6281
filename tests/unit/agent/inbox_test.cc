// What the agent's thread tells the trainer's: the second one sees what the first did.
#include "runtime/agent/inbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

using core::GateState;
using core::GateWord;
using Kind = Inbox::Taken::Kind;

TimePoint Now() { return SteadyClock::SteadyNow(); }
TimePoint Soon() { return SteadyClock::SteadyNow() + std::chrono::seconds(30); }

core::StopOrder Verdict(Step step, bool exists) {
  core::StopOrder verdict;
  verdict.step = step;
  verdict.step_exists = exists;
  return verdict;
}

struct Told {
  Told() {
    EXPECT_TRUE(page.Open(-1).ok());
    gate.Open(page.words());
  }
  void ReleaseTo(Step step) {
    inbox.PutRelease({Generation(1), step});
    ASSERT_EQ(inbox.Take(Now()).kind, Kind::kRelease);
  }
  void GoToGate(Step step) {
    ReleaseTo(step.Previous());
    GateWord found;
    ASSERT_TRUE(gate.Enter(step, GateState::kAtGate, &found));
  }
  RankPage page;
  Gate gate;
  Inbox inbox{gate, page};
};

TEST(Inbox, GivesNothingBeforeItsDeadlineIsOver) {
  Told told;
  EXPECT_EQ(told.inbox.Take(Now()).kind, Kind::kNothing);
  told.inbox.PutContinue();
  EXPECT_EQ(told.inbox.Take(Now()).kind, Kind::kContinue);
  EXPECT_EQ(told.inbox.Take(Now()).kind, Kind::kNothing);
}

TEST(Inbox, UnlocksTheGateWhenAReleaseIsTaken) {
  Told told;
  told.inbox.PutContinue();
  told.inbox.PutRelease({Generation(3), Step(7)});
  EXPECT_TRUE(told.gate.Word().locked);
  const Inbox::Taken taken = told.inbox.Take(Now());
  EXPECT_EQ(taken.kind, Kind::kRelease);
  EXPECT_EQ(taken.release.step, Step(7));
  EXPECT_TRUE(told.gate.StillAt(Step(7)));
  EXPECT_EQ(told.page.words().state_mark.load(), static_cast<uint64_t>(core::StateMark::kWhole));
  EXPECT_EQ(told.inbox.Take(Now()).kind, Kind::kNothing) << "what was to go on is released";
}

TEST(Inbox, LeavesMemoryThatIsDamagedAsItIsMarked) {
  Told told;
  told.page.Mark(core::StateMark::kWriting);
  told.inbox.PutRelease({Generation(3), Step(7), /*whole=*/false});
  EXPECT_EQ(told.inbox.Take(Now()).kind, Kind::kRelease);
  EXPECT_EQ(told.page.words().state_mark.load(), static_cast<uint64_t>(core::StateMark::kWriting));
}

TEST(Inbox, DropsAReleaseThatALockFindsThere) {
  Told told;
  told.inbox.PutRelease({Generation(1), Step(7)});
  const Inbox::Locked locked = told.inbox.LockGate();
  EXPECT_TRUE(locked.dropped_release);
  EXPECT_TRUE(locked.before.locked);
  EXPECT_EQ(told.inbox.Take(Now()).kind, Kind::kNothing);
  EXPECT_TRUE(told.gate.Word().locked);
}

TEST(Inbox, LocksWhatAReleaseHasUnlocked) {
  Told told;
  told.ReleaseTo(Step(7));
  const Inbox::Locked locked = told.inbox.LockGate();
  EXPECT_FALSE(locked.dropped_release);
  EXPECT_FALSE(locked.before.locked);
  EXPECT_EQ(locked.before.step, Step(7));
}

// A release and a lock that meet: it is taken or dropped, never both, never neither, and the gate is locked after.
TEST(Inbox, SettlesAReleaseAndALockThatMeetOneWay) {
  Told told;
  for (uint64_t round = 1; round <= 500; ++round) {
    told.inbox.PutRelease({Generation(round), Step(round)});
    Inbox::Taken taken;
    std::thread trainer([&] { taken = told.inbox.Take(Now()); });
    const Inbox::Locked locked = told.inbox.LockGate();
    trainer.join();
    ASSERT_NE(taken.kind == Kind::kRelease, locked.dropped_release);
    ASSERT_EQ(locked.before.locked, locked.dropped_release);
    ASSERT_TRUE(told.gate.Word().locked);
  }
}

TEST(Inbox, OpensTheGateOfItsStepOnly) {
  Told told;
  told.GoToGate(Step(5));
  bool passed = false;
  std::thread trainer([&] { passed = told.inbox.AwaitGate(Step(5)); });
  told.inbox.OpenGate(Step(5));
  trainer.join();
  EXPECT_TRUE(passed);
  told.inbox.OpenGate(Step(4));
  (void)told.inbox.LockGate();
  EXPECT_FALSE(told.inbox.AwaitGate(Step(5)));
}

TEST(Inbox, WakesWhoIsAtTheGateWhenItIsLocked) {
  Told told;
  told.GoToGate(Step(5));
  bool passed = true;
  std::thread trainer([&] { passed = told.inbox.AwaitGate(Step(5)); });
  EXPECT_EQ(told.inbox.LockGate().before.state, GateState::kAtGate);
  trainer.join();
  EXPECT_FALSE(passed);
}

TEST(Inbox, DoesNotTakeAnOldVerdictForANewOne) {
  Told told;
  told.GoToGate(Step(5));
  told.inbox.PutVerdict(Verdict(Step(5), true));
  (void)told.inbox.LockGate();
  std::atomic<bool> judged{false};
  bool happens = true;
  std::thread trainer([&] {
    happens = told.inbox.AwaitVerdict(Step(5));
    judged = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(judged);
  told.inbox.PutVerdict(Verdict(Step(4), true));
  trainer.join();
  EXPECT_FALSE(happens);
  EXPECT_EQ(told.gate.Word().Packed(), GateWord::Pack(GateState::kCommitted, 4) | Gate::kLockBit);
}

TEST(Inbox, LetsAnUpdateHappenThatTheVerdictNames) {
  for (const bool exists : {true, false}) {
    Told told;
    told.GoToGate(Step(5));
    (void)told.inbox.LockGate();
    told.inbox.PutVerdict(Verdict(Step(5), exists));
    EXPECT_EQ(told.inbox.AwaitVerdict(Step(5)), exists);
    EXPECT_EQ(told.gate.Word().state, exists ? GateState::kUpdating : GateState::kCommitted);
  }
}

TEST(Inbox, CancelsTheTaskThatWasTakenOrWithdrawsTheOrder) {
  Told told;
  told.inbox.PutOrder({Generation(2), {}});
  const Inbox::Withdrawn untaken = told.inbox.WithdrawOrder();
  EXPECT_TRUE(untaken.order);
  EXPECT_FALSE(untaken.cancel);
  EXPECT_EQ(told.inbox.Take(Now()).kind, Kind::kNothing);

  told.inbox.PutOrder({Generation(3), {}});
  const Inbox::Taken taken = told.inbox.Take(Now());
  ASSERT_EQ(taken.kind, Kind::kOrder);
  const Inbox::Withdrawn running = told.inbox.WithdrawOrder();
  EXPECT_FALSE(running.order);
  ASSERT_TRUE(running.cancel);
  running.cancel->Cancel();
  EXPECT_TRUE(taken.cancel->cancelled());
}

TEST(Inbox, EndsEveryWaitAndSaysNothingElseAfterwards) {
  Told told;
  told.GoToGate(Step(5));
  bool passed = true, happens = true;
  std::thread trainer([&] {
    passed = told.inbox.AwaitGate(Step(5));
    happens = told.inbox.AwaitVerdict(Step(5));
  });
  EXPECT_TRUE(told.inbox.BeginEnd());
  (void)told.inbox.PutEnd({75, "saved"});
  trainer.join();
  EXPECT_FALSE(passed);
  EXPECT_FALSE(happens);
  told.inbox.PutOrder({Generation(2), {}});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(told.inbox.Take(Soon()).kind, Kind::kEnd);
  EXPECT_EQ(told.inbox.AwaitEnd().exit_code, 75);
  EXPECT_FALSE(told.inbox.BeginEnd());
}

TEST(Inbox, LocksTheGateAtTheEnd) {
  Told told;
  told.ReleaseTo(Step(5));
  (void)told.inbox.BeginEnd();
  EXPECT_FALSE(told.gate.Word().locked);
  (void)told.inbox.PutEnd({0, "over"});
  EXPECT_TRUE(told.gate.Word().locked);
}

TEST(Inbox, ChecksThatARunEndsOnce) {
  Told told;
  EXPECT_THROW((void)told.inbox.PutEnd({1, "too soon"}), CheckFailure);
  (void)told.inbox.BeginEnd();
  (void)told.inbox.PutEnd({1, "once"});
  EXPECT_THROW((void)told.inbox.PutEnd({0, "twice"}), CheckFailure);
  EXPECT_EQ(told.inbox.end()->text, "once");
}

}  // namespace
}  // namespace kintsugi
