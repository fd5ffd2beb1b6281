// State that outlives its process, with the launcher's end of the channel in the test's hands.
#include "runtime/agent/state_keeper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "callbacks/state/shared_memory.h"

namespace kintsugi {
namespace {

TimePoint Soon() { return SteadyClock::SteadyNow() + std::chrono::seconds(10); }

// A process that has registered `w`, four numbers in memory of the agent's.
class Process {
 public:
  explicit Process(StateChannel& launcher) {
    auto [here, there] = StateChannel::CreatePair().value();
    launcher = std::move(there);
    keeper_.Open(UniqueFd(dup(here.fd())));
    memory_ = keeper_.Add(std::make_unique<SharedMemory>(SharedMemory::Allocate(4096).value()));
  }
  void Register(uint64_t offset = 0, int64_t first_number = 0) {
    ShardedTensor w;
    w.key = "w";
    w.dtype = DType::kFloat32;
    w.global_shape = {8};
    w.local_shape = {4};
    w.global_offset = {first_number};
    w.memory = SliceOf(memory_, offset, 16);
    ASSERT_TRUE(registry_.AddTensor(w).ok());
  }
  StateKeeper& keeper() { return keeper_; }
  StateRegistry& registry() { return registry_; }
  float* numbers() { return static_cast<float*>(registry_.tensors().at("w").memory.data); }

 private:
  StateRegistry registry_;
  StateKeeper keeper_{registry_, NullLogSink()};
  Memory memory_;
};

// What a launcher does with it: gives the next process what the one before has offered.
void Answer(StateChannel& launcher, StateMessage& tensors, StateMessage* objects) {
  ASSERT_EQ(launcher.Receive(Soon()).value().word, StateWord::kAsk);
  std::vector<int> files;
  for (const UniqueFd& file : tensors.files) files.push_back(file.get());
  ASSERT_TRUE(launcher.Send(StateWord::kTensors, tensors.shape, files).ok());
  if (objects) {
    ASSERT_TRUE(launcher.Send(StateWord::kObjects, 0, {objects->files.front().get()}).ok());
  }
  ASSERT_TRUE(launcher.Send(StateWord::kEnd).ok());
}

class StateKeeperTest : public ::testing::Test {
 protected:
  // What the process has said of its tensors last.
  StateMessage Offered(StateChannel& launcher) {
    StateMessage newest;
    for (;;) {
      Result<StateMessage> next = launcher.Receive();
      if (!next.ok()) return newest;
      if (next->word == StateWord::kTensors) newest = std::move(*next);
    }
  }
  StateChannel launcher_{UniqueFd()}, next_launcher_{UniqueFd()};
};

TEST_F(StateKeeperTest, WhatOneProcessLeavesTheNextAdopts) {
  StateMessage tensors, objects;
  {
    Process lost(launcher_);
    lost.Register();
    EXPECT_EQ(lost.keeper().Offer(true), "");
    std::fill_n(lost.numbers(), 4, 3.5f);
    EXPECT_TRUE(lost.keeper().keeps_objects());
    const auto bytes = std::make_shared<const std::vector<uint8_t>>(std::vector<uint8_t>{1, 2, 3});
    lost.keeper().KeepObjects(Step(7), {{Rank(1), {{"object", bytes}}}}, /*ahead=*/true);
    tensors = launcher_.Receive(Soon()).value();
    for (Result<StateMessage> next = launcher_.Receive(); next.ok(); next = launcher_.Receive())
      objects = std::move(*next);  // the file grew
  }
  Process next(next_launcher_);
  next.Register();
  std::thread answers([&] {
    for (StateMessage said = next_launcher_.Receive(Soon()).value(); said.word != StateWord::kObjects;)
      said = next_launcher_.Receive(Soon()).value();
    Answer(next_launcher_, tensors, &objects);
  });
  ASSERT_EQ(next.keeper().Offer(true), "");
  std::vector<RankObjects> taken;
  const Status adopted =
      next.keeper().Adopt(Step(7), [&](std::vector<RankObjects> known) { taken = std::move(known); });
  answers.join();
  ASSERT_TRUE(adopted.ok()) << adopted.ToString();
  EXPECT_EQ(next.numbers()[3], 3.5f);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].rank, Rank(1));
  EXPECT_EQ(*taken[0].objects.at(0).bytes, (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_TRUE(next.keeper().IsAhead(Step(7)));
  EXPECT_EQ(next_launcher_.Receive(Soon()).value().word, StateWord::kAdopted);
  EXPECT_TRUE(next.keeper().Adopt(Step(7), nullptr).ok()) << "once in the life of a process";
}

TEST_F(StateKeeperTest, ALauncherHoldsAllThatIsRegisteredOrNothing) {
  Process process(launcher_);
  process.Register();
  static float elsewhere[4];
  ShardedTensor outside = process.registry().tensors().at("w");
  outside.key = "outside";
  outside.memory = {};
  outside.memory.data = elsewhere;
  outside.memory.size_bytes = sizeof elsewhere;
  ASSERT_TRUE(process.registry().AddTensor(outside).ok());
  const std::string why = process.keeper().Offer(false);
  EXPECT_NE(why.find("'outside'"), std::string::npos) << why;
  EXPECT_TRUE(Offered(launcher_).files.empty());
}

TEST_F(StateKeeperTest, WhatIsWithdrawnIsHeldNoMore) {
  Process process(launcher_);
  process.Register();
  EXPECT_EQ(process.keeper().Offer(false), "");
  ASSERT_TRUE(process.keeper().Withdraw().ok());
  EXPECT_TRUE(Offered(launcher_).files.empty());
}

TEST_F(StateKeeperTest, StateThatLaysOtherwiseIsNotAdopted) {
  StateMessage tensors;
  {
    Process lost(launcher_);
    lost.Register(0);
    EXPECT_EQ(lost.keeper().Offer(false), "");
    tensors = Offered(launcher_);
  }
  Process next(next_launcher_);
  next.Register(64);
  std::thread answers([&] { Answer(next_launcher_, tensors, nullptr); });
  const Status refused = next.keeper().Adopt(Step(7), nullptr);
  answers.join();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("laid it out"), std::string::npos) << refused.message();
}

TEST_F(StateKeeperTest, AnotherPieceThatLiesAlikeIsNotAdopted) {
  StateMessage tensors;
  {
    Process lost(launcher_);
    lost.Register(0, 4);
    EXPECT_EQ(lost.keeper().Offer(false), "");
    tensors = Offered(launcher_);
  }
  Process next(next_launcher_);
  next.Register(0, 0);
  std::thread answers([&] { Answer(next_launcher_, tensors, nullptr); });
  const Status refused = next.keeper().Adopt(Step(7), nullptr);
  answers.join();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << refused.ToString();
}

TEST_F(StateKeeperTest, MemoryThatTheRegistryHasLeftIsReleased) {
  Process process(launcher_);
  process.Register();
  StateRegistry was = process.registry();
  Memory before = was.tensors().at("w").memory;
  ShardedTensor w = was.tensors().at("w");
  w.memory = SliceOf(process.keeper().Add(std::make_unique<SharedMemory>(SharedMemory::Allocate(4096).value())), 0, 16);
  Memory idle = process.keeper().Add(std::make_unique<SharedMemory>(SharedMemory::Allocate(4096).value()));
  StateRegistry is;
  ASSERT_TRUE(is.AddTensor(w).ok());
  process.registry() = is;
  process.keeper().Release(was);
  const auto is_kept = [&](Memory memory) {
    memory.shared_fd = -1;
    process.keeper().Describe(&memory);
    return memory.shared_fd >= 0;
  };
  EXPECT_FALSE(is_kept(before));
  EXPECT_TRUE(is_kept(w.memory));
  EXPECT_TRUE(is_kept(idle)) << "nothing was ever registered there";
}

TEST_F(StateKeeperTest, WithoutALauncherNothingIsOfferedAndNothingAdopted) {
  StateRegistry registry;
  StateKeeper keeper(registry, NullLogSink());
  EXPECT_EQ(keeper.Offer(true), "");
  EXPECT_FALSE(keeper.keeps_objects());
  EXPECT_TRUE(keeper.Withdraw().ok());
  EXPECT_EQ(keeper.Adopt(Step(1), nullptr).code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace kintsugi
