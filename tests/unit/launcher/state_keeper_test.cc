// StateKeeper with a process in small: it offers its memory, ends, and the next one asks.
#include "runtime/launcher/state_keeper.h"

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
  Life(StateKeeper& keeper, uint64_t number) : incarnation(number), page(SharedPage::CreateLocal().value()) {
    auto ends = StateChannel::CreatePair().value();
    keeper.Attach(std::move(ends.first));
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
  std::optional<core::HeldState> End(StateKeeper& keeper, int signal = SIGKILL) {
    channel.reset();
    memory.reset();
    return keeper.OnExit(incarnation, page.words(), By(signal));
  }
  // What the launcher answers; the first byte of the first file.
  std::optional<char> Ask(StateKeeper& keeper) {
    EXPECT_TRUE(channel->Send(StateWord::kAsk).ok());
    keeper.Poll(page.words());
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

TEST(StateKeeper, WhatLiesOnADeviceIsGoneWithIt) {
  for (const bool on_device : {false, true}) {
    StateKeeper keeper;
    Life first(keeper, 1);
    first.Offer('a');
    if (on_device) {
      ASSERT_TRUE(first.channel->Send(StateWord::kOnDevice).ok());
    }
    first.Stand(StateMark::kWhole);
    keeper.DistrustDevice();
    EXPECT_EQ(first.End(keeper).has_value(), !on_device);
    Life second(keeper, 2);
    EXPECT_EQ(second.Ask(keeper).has_value(), !on_device);
    // What the process before left there, too.
    keeper.DistrustDevice();
    EXPECT_EQ(keeper.held().has_value(), !on_device);
  }
  StateKeeper keeper;
  Life first(keeper, 1);
  first.Offer('a');
  ASSERT_TRUE(first.channel->Send(StateWord::kOnDevice).ok());
  first.Stand(StateMark::kWhole);
  EXPECT_TRUE(first.End(keeper).has_value());
  keeper.DistrustDevice();
  EXPECT_FALSE(keeper.held().has_value()) << "the device failed after the process";
}

TEST(StateKeeper, KeepsWhatAKilledProcessLeftForTheNext) {
  StateKeeper keeper;
  Life first(keeper, 1);
  EXPECT_EQ(first.Ask(keeper), std::nullopt) << "nobody was before it";
  first.Offer('a');
  first.Stand(StateMark::kWhole);
  const auto held = first.End(keeper);
  EXPECT_EQ(held, (core::HeldState{Incarnation(1), Step(5), true}));
  Life second(keeper, 2);
  EXPECT_EQ(second.Ask(keeper), 'a');
  // Once it is in its loop nobody needs that any more.
  second.Stand(StateMark::kWhole);
  keeper.Poll(second.page.words());
  EXPECT_EQ(keeper.held(), std::nullopt);
}

TEST(StateKeeper, KeepsItThroughReplacementsThatNeverRan) {
  StateKeeper keeper;
  Life first(keeper, 1);
  first.Offer('a');
  first.Stand(StateMark::kWhole);
  (void)first.End(keeper);
  Life second(keeper, 2);
  second.Offer('b');
  EXPECT_EQ(second.End(keeper)->of, Incarnation(1));
  Life third(keeper, 3);
  EXPECT_EQ(third.Ask(keeper), 'a');
}

TEST(StateKeeper, KeepsItThroughReplacementsThatWroteOnlyTheirOwnMemory) {
  StateKeeper keeper;
  Life first(keeper, 1);
  first.Offer('a');
  first.Stand(StateMark::kWhole);
  (void)first.End(keeper);
  Life second(keeper, 2);
  second.Offer('b');
  second.Stand(StateMark::kWriting);  // state is streamed into it when it ends
  keeper.Poll(second.page.words());
  EXPECT_EQ(second.End(keeper), (core::HeldState{Incarnation(1), Step(5), true}));
  Life third(keeper, 3);
  EXPECT_EQ(third.Ask(keeper), 'a');
  third.Stand(StateMark::kWriting);  // it has the files: from here on it may write into them
  keeper.Poll(third.page.words());
  EXPECT_EQ(third.End(keeper), std::nullopt);
}

TEST(StateKeeper, WhatWasAdoptedIsTheNewProcessesOwn) {
  StateKeeper keeper;
  Life first(keeper, 1);
  first.Offer('a');
  first.Stand(StateMark::kWhole);
  (void)first.End(keeper);
  Life second(keeper, 2);
  second.Offer('b');
  ASSERT_EQ(second.Ask(keeper), 'a');
  ASSERT_TRUE(second.channel->Send(StateWord::kAdopted).ok());
  keeper.Poll(second.page.words());
  second.Stand(StateMark::kWhole, GateState::kAtGate, 9);
  keeper.Poll(second.page.words());
  EXPECT_EQ(second.End(keeper), (core::HeldState{Incarnation(2), Step(8), true}));
  Life third(keeper, 3);
  EXPECT_EQ(third.Ask(keeper), 'a') << "the files of the first, which the second went on with";
}

TEST(StateKeeper, KeepsNothingThatIsNoStep) {
  for (const StateMark mark : {StateMark::kWriting, StateMark::kWhole, static_cast<StateMark>(9)}) {
    StateKeeper keeper;
    Life life(keeper, 1);
    life.Offer('a');
    life.Stand(mark, mark == StateMark::kWhole ? GateState::kUpdating : GateState::kCommitted);
    EXPECT_EQ(life.End(keeper), std::nullopt);
    Life next(keeper, 2);
    EXPECT_EQ(next.Ask(keeper), std::nullopt);
  }
}

TEST(StateKeeper, TellsAnEndFromOutsideFromACrash) {
  for (const auto& [signal, clean] : {std::pair{SIGKILL, true}, {SIGTERM, true}, {SIGSEGV, false}, {SIGABRT, false}}) {
    StateKeeper keeper;
    Life life(keeper, 1);
    life.Offer('a');
    life.Stand(StateMark::kWhole);
    EXPECT_EQ(life.End(keeper, signal)->clean, clean) << signal;
  }
}

TEST(StateKeeper, AProcessThatTakesItsOfferBackLeavesNothing) {
  StateKeeper keeper;
  Life life(keeper, 1);
  life.Offer('a');
  ASSERT_TRUE(life.channel->Send(StateWord::kTensors).ok());
  life.Stand(StateMark::kWhole);
  EXPECT_EQ(life.End(keeper), std::nullopt);
}

}  // namespace
}  // namespace kintsugi
