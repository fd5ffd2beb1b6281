// The gate word, its lock and the fence behind an update.
#include "runtime/agent/gate.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

using core::GateState;
using core::GateWord;

class Fence final : public DeviceFence {
 public:
  Result<bool> IsDone() const override { return done; }
  bool done = false;
};

struct OpenGate {
  OpenGate() {
    gate.Open(words);
    gate.Release(Step(4));
  }
  void EnterUpdate(Step step) {
    GateWord found;
    ASSERT_TRUE(gate.Enter(step, GateState::kUpdating, &found));
  }
  SharedWords words;
  Gate gate;
};

TEST(Gate, LetsNothingPassBeforeTheFirstRelease) {
  SharedWords words;
  Gate gate;
  gate.Open(words);
  GateWord found;
  EXPECT_FALSE(gate.Enter(Step(1), GateState::kAtGate, &found));
  EXPECT_TRUE(found.locked);
  gate.Release(Step(0));
  EXPECT_TRUE(gate.Enter(Step(1), GateState::kAtGate, &found));
}

TEST(Gate, IsReleasedOnlyWhenLocked) {
  OpenGate open;
  EXPECT_THROW(open.gate.Release(Step(5)), CheckFailure);
  (void)open.gate.Lock();
  EXPECT_NO_THROW(open.gate.Release(Step(5)));
}

TEST(Gate, NumbersUpdatesOneByOne) {
  OpenGate open;
  GateWord found;
  EXPECT_FALSE(open.gate.Enter(Step(6), GateState::kUpdating, &found));
  EXPECT_EQ(found.step, Step(4));
  EXPECT_FALSE(open.gate.IsBefore(Step(6)));
  EXPECT_TRUE(open.gate.IsBefore(Step(5)));
  open.EnterUpdate(Step(5));
  uint64_t word = 0;
  EXPECT_FALSE(open.gate.Commit(Step(6), nullptr, &word));
  EXPECT_TRUE(open.gate.Commit(Step(5), nullptr, &word));
  EXPECT_TRUE(open.gate.StillAt(Step(5)));
}

TEST(Gate, HoldsWhoIsAtItOnceItIsLocked) {
  OpenGate open;
  GateWord found;
  ASSERT_TRUE(open.gate.Enter(Step(5), GateState::kAtGate, &found));
  EXPECT_EQ(open.gate.Lock().state, GateState::kAtGate);
  EXPECT_FALSE(open.gate.Pass(Step(5)));
  open.gate.Judge(Step(5), /*happens=*/true);
  EXPECT_EQ(open.gate.Word().Packed(), GateWord::Pack(GateState::kUpdating, 5) | Gate::kLockBit);
  open.gate.Judge(Step(5), /*happens=*/false);
  EXPECT_EQ(open.gate.Word().Packed(), GateWord::Pack(GateState::kCommitted, 4) | Gate::kLockBit);
}

TEST(Gate, CallsAnUpdateUnderWayWhoseDeviceIsBehind) {
  OpenGate open;
  Fence fence;
  open.EnterUpdate(Step(5));
  uint64_t word = 0;
  ASSERT_TRUE(open.gate.Commit(Step(5), &fence, &word));
  EXPECT_FALSE(*open.gate.IsSettled());
  EXPECT_EQ(open.gate.Lock().state, GateState::kUpdating);
  EXPECT_EQ(open.gate.Word().state, GateState::kCommitted);
  EXPECT_EQ(open.words.device_behind, 5u) << "its launcher takes what the process leaves for step 5";
  open.gate.DropFence();
  EXPECT_EQ(open.words.device_behind, 0u);
  EXPECT_TRUE(*open.gate.IsSettled());
  EXPECT_EQ(open.gate.Lock().state, GateState::kCommitted);
}

TEST(Gate, TearsOnlyWhatIsUnderWay) {
  OpenGate open;
  EXPECT_FALSE(open.gate.Tear());
  open.EnterUpdate(Step(5));
  (void)open.gate.Lock();
  EXPECT_TRUE(open.gate.Tear());
  EXPECT_EQ(open.gate.Word().Packed(), GateWord::Pack(GateState::kTorn, 5) | Gate::kLockBit);
  EXPECT_FALSE(open.gate.Tear());
}

// The trainer's thread moves the word on and on; whatever it is at, a lock stays, and it stops at it.
TEST(Gate, NeverLosesALock) {
  OpenGate open;
  for (int round = 0; round < 300; ++round) {
    std::thread trainer([&] {
      uint64_t word = 0;
      GateWord found;
      for (Step step = open.gate.Word().step.Next();; step = step.Next()) {
        if (!open.gate.Enter(step, GateState::kAtGate, &found)) return;
        if (!open.gate.Pass(step)) return open.gate.Judge(step, /*happens=*/false);
        if (!open.gate.Commit(step, nullptr, &word) || (word & Gate::kLockBit)) return;
      }
    });
    (void)open.gate.Lock();
    trainer.join();
    const GateWord now = open.gate.Word();
    ASSERT_TRUE(now.locked);
    ASSERT_EQ(now.state, GateState::kCommitted);
    open.gate.Release(now.step);
  }
}

}  // namespace
}  // namespace kintsugi
