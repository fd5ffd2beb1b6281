// HeldMemory with a process in small: it offers its memory, ends, and the next one asks.
#include "runtime/launcher/workers/held_memory.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>

#include "callbacks/state/shared_memory.h"

namespace kintsugi {
namespace {

using core::GateState;
using core::GateWord;
using core::StateMark;

ExitCause By(int signal) {
  ExitCause cause;
  cause.kind = ExitKind::kSignal;
  cause.signal = signal;
  return cause;
}

struct Life {
  Life(HeldMemory& kept, uint64_t number) : incarnation(number), page(SharedPage::CreateLocal().value()) {
    auto ends = StateChannel::CreatePair().value();
    kept.Attach(std::move(ends.first));
    channel.emplace(std::move(ends.second));
  }
  void Offer(char with, bool objects = true) {
    memory.emplace(SharedMemory::Allocate(4096).value());
    std::memset(memory->memory().data, with, 4096);
    ASSERT_TRUE(channel->Send(StateWord::kTensors, 7, {memory->memory().shared_fd}).ok());
    if (objects) {
      ASSERT_TRUE(channel->Send(StateWord::kObjects, 0, {memory->memory().shared_fd}).ok());
    }
  }
  void Stand(StateMark mark, GateState state = GateState::kCommitted, uint64_t step = 5) {
    page.words().state_mark = static_cast<uint64_t>(mark);
    page.words().gate_word = GateWord::Pack(state, step);
  }
  std::optional<core::HeldState> End(HeldMemory& kept, int signal = SIGKILL) {
    channel.reset();
    memory.reset();
    return kept.OnExit(incarnation, page.words(), By(signal));
  }
  // What the launcher answers; the first byte of the first file.
  std::optional<char> Ask(HeldMemory& kept) {
    EXPECT_TRUE(channel->Send(StateWord::kAsk).ok());
    kept.Poll(page.words());
    StateMessage got = channel->Receive().value();
    if (got.word == StateWord::kNothing) return std::nullopt;
    EXPECT_EQ(got.shape, 7u);
    while (channel->Receive().value().word != StateWord::kEnd) {
    }
    return *static_cast<char*>(SharedMemory::Open(std::move(got.files.at(0))).value().memory().data);
  }

  Incarnation incarnation;
  SharedPage page;
  std::optional<StateChannel> channel;
  std::optional<SharedMemory> memory;
};

TEST(HeldMemory, WhatLiesOnADeviceIsGoneWithIt) {
  for (const bool on_device : {false, true}) {
    HeldMemory kept;
    Life first(kept, 1);
    first.Offer('a');
    if (on_device) {
      ASSERT_TRUE(first.channel->Send(StateWord::kOnDevice).ok());
    }
    first.Stand(StateMark::kWhole);
    kept.DistrustDevice();
    EXPECT_EQ(first.End(kept).has_value(), !on_device);
    Life second(kept, 2);
    EXPECT_EQ(second.Ask(kept).has_value(), !on_device);
    // What the process before left there, too.
    kept.DistrustDevice();
    EXPECT_EQ(kept.held().has_value(), !on_device);
  }
  HeldMemory kept;
  Life first(kept, 1);
  first.Offer('a');
  ASSERT_TRUE(first.channel->Send(StateWord::kOnDevice).ok());
  first.Stand(StateMark::kWhole);
  EXPECT_TRUE(first.End(kept).has_value());
  kept.DistrustDevice();
  EXPECT_FALSE(kept.held().has_value()) << "the device failed after the process";
}

TEST(HeldMemory, KeepsWhatAKilledProcessLeftForTheNext) {
  HeldMemory kept;
  Life first(kept, 1);
  EXPECT_EQ(first.Ask(kept), std::nullopt) << "nobody was before it";
  first.Offer('a');
  first.Stand(StateMark::kWhole);
  const auto held = first.End(kept);
  EXPECT_EQ(held, (core::HeldState{Incarnation(1), Step(5), true}));
  Life second(kept, 2);
  EXPECT_EQ(second.Ask(kept), 'a');
  // Once it is in its loop nobody needs that any more.
  second.Stand(StateMark::kWhole);
  kept.Poll(second.page.words());
  EXPECT_EQ(kept.held(), std::nullopt);
}

TEST(HeldMemory, KeepsNothingOfAnUpdateThatItsDeviceWasNotSeenToHaveDone) {
  for (const uint64_t behind : {0, 5}) {
    HeldMemory kept;
    Life first(kept, 1);
    first.Offer('a');
    first.Stand(StateMark::kWhole);
    first.page.words().device_behind = behind;
    EXPECT_EQ(first.End(kept).has_value(), behind == 0);
  }
}

TEST(HeldMemory, KeepsItThroughReplacementsThatNeverRan) {
  HeldMemory kept;
  Life first(kept, 1);
  first.Offer('a');
  first.Stand(StateMark::kWhole);
  (void)first.End(kept);
  Life second(kept, 2);
  second.Offer('b');
  EXPECT_EQ(second.End(kept)->of, Incarnation(1));
  Life third(kept, 3);
  EXPECT_EQ(third.Ask(kept), 'a');
}

TEST(HeldMemory, KeepsItThroughReplacementsThatWroteOnlyTheirOwnMemory) {
  HeldMemory kept;
  Life first(kept, 1);
  first.Offer('a');
  first.Stand(StateMark::kWhole);
  (void)first.End(kept);
  Life second(kept, 2);
  second.Offer('b');
  second.Stand(StateMark::kWriting);  // state is streamed into it when it ends
  kept.Poll(second.page.words());
  EXPECT_EQ(second.End(kept), (core::HeldState{Incarnation(1), Step(5), true}));
  Life third(kept, 3);
  EXPECT_EQ(third.Ask(kept), 'a');
  third.Stand(StateMark::kWriting);  // it has the files: from here on it may write into them
  kept.Poll(third.page.words());
  EXPECT_EQ(third.End(kept), std::nullopt);
}

TEST(HeldMemory, WhatWasAdoptedIsTheNewProcessesOwn) {
  HeldMemory kept;
  Life first(kept, 1);
  first.Offer('a');
  first.Stand(StateMark::kWhole);
  (void)first.End(kept);
  Life second(kept, 2);
  second.Offer('b');
  ASSERT_EQ(second.Ask(kept), 'a');
  ASSERT_TRUE(second.channel->Send(StateWord::kAdopted).ok());
  kept.Poll(second.page.words());
  second.Stand(StateMark::kWhole, GateState::kAtGate, 9);
  kept.Poll(second.page.words());
  EXPECT_EQ(second.End(kept), (core::HeldState{Incarnation(2), Step(8), true}));
  Life third(kept, 3);
  EXPECT_EQ(third.Ask(kept), 'a') << "the files of the first, which the second went on with";
}

TEST(HeldMemory, KeepsNothingThatIsNoStep) {
  for (const StateMark mark : {StateMark::kWriting, StateMark::kWhole, static_cast<StateMark>(9)}) {
    HeldMemory kept;
    Life life(kept, 1);
    life.Offer('a');
    life.Stand(mark, mark == StateMark::kWhole ? GateState::kUpdating : GateState::kCommitted);
    EXPECT_EQ(life.End(kept), std::nullopt);
    Life next(kept, 2);
    EXPECT_EQ(next.Ask(kept), std::nullopt);
  }
}

TEST(HeldMemory, TellsAnEndFromOutsideFromACrash) {
  for (const auto& [signal, clean] : {std::pair{SIGKILL, true}, {SIGTERM, true}, {SIGSEGV, false}, {SIGABRT, false}}) {
    HeldMemory kept;
    Life life(kept, 1);
    life.Offer('a');
    life.Stand(StateMark::kWhole);
    EXPECT_EQ(life.End(kept, signal)->clean, clean) << signal;
  }
}

TEST(HeldMemory, AProcessThatTakesItsOfferBackLeavesNothing) {
  HeldMemory kept;
  Life life(kept, 1);
  life.Offer('a');
  ASSERT_TRUE(life.channel->Send(StateWord::kTensors).ok());
  life.Stand(StateMark::kWhole);
  EXPECT_EQ(life.End(kept), std::nullopt);
}

}  // namespace
}  // namespace kintsugi
