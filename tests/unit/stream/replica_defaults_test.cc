#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "callbacks/state/relocation.h"
#include "replica/defaults.h"
#include "tests/support/child_process.h"
#include "tests/support/directory_store.h"
#include "tests/support/memory_store.h"

namespace kintsugi {
namespace {

auto DigestsOf(ReplicaDefaults& service) {
  CancelToken never;
  return service.Digests(never);
}

using namespace std::chrono_literals;

constexpr uint64_t kMiB = 1 << 20;

// A rank with two tensors in layout 0 and one in layout 1.
struct TestRank {
  TestRank(Rank self, std::vector<Rank> all_partners, float value, size_t elements = 700001)
      : rank(self), partners(std::move(all_partners)) {
    for (const char* key : {"a", "b", "expert"}) Add(key, key[0] == 'e' ? 1 : 0, elements, value);
    service = std::make_unique<ReplicaDefaults>(registry);
  }
  void Add(const std::string& key, int layout, size_t elements, float value) {
    // Element i is value + i mod 1000, copied in doubling runs: quick under a sanitizer too.
    auto& data = *tensors.emplace_back(std::make_unique<std::vector<float>>(elements));
    const size_t first = std::min<size_t>(elements, 1000);
    for (size_t i = 0; i < first; ++i) data[i] = value + static_cast<float>(i);
    for (size_t filled = first; filled < elements; filled *= 2)
      std::memcpy(&data[filled], data.data(), std::min(filled, elements - filled) * sizeof(float));
    const auto count = static_cast<int64_t>(elements);
    const Status added = registry.AddTensor({.key = key,
                                             .global_shape = {count},
                                             .local_shape = {count},
                                             .global_offset = {0},
                                             .layout = layout,
                                             .memory = {.data = data.data(), .size_bytes = elements * sizeof(float)}});
    EXPECT_TRUE(added.ok()) << added.ToString();
  }
  HandlerContext Call(Store& store, CancelToken& cancel, uint64_t generation, Step step) const {
    HandlerContext call;
    call.rank = rank;
    call.generation = Generation(generation);
    call.step = step;
    call.deadline = In(60s);
    call.cancel = &cancel;
    call.store = &store;
    call.rung = Rung::kRespawn;
    call.partners = partners;
    return call;
  }

  Rank rank;
  std::vector<Rank> partners;
  std::vector<std::unique_ptr<std::vector<float>>> tensors;
  StateRegistry registry;
  std::unique_ptr<ReplicaDefaults> service;
};

std::vector<uint8_t> Bytes(int rank, int step) { return {static_cast<uint8_t>(rank), static_cast<uint8_t>(step), 7}; }

// Ranks 0 and 2 hold one shard, 1 and 3 the other.
class ReplicaDefaultsTest : public testing::Test {
 protected:
  ReplicaDefaultsTest() {
    for (int i = 0; i < 4; ++i)
      ranks.push_back(std::make_unique<TestRank>(Rank(i), std::vector<Rank>{Rank((i + 2) % 4)}, 10.0f + i % 2));
  }
  // A process that has just been started in the place of rank `i`.
  void Respawn(int i) {
    ranks[static_cast<size_t>(i)] = std::make_unique<TestRank>(Rank(i), std::vector<Rank>{Rank((i + 2) % 4)}, -1.0f);
  }
  void EachRank(const std::function<void(TestRank&)>& body) {
    std::vector<std::thread> threads;
    for (auto& rank : ranks) threads.emplace_back([&] { body(*rank); });
    for (auto& thread : threads) thread.join();
  }
  void OpenAll(uint64_t generation) {
    EachRank([&](TestRank& rank) {
      auto call = rank.Call(store, cancel, generation, Step(0));
      const Status opened = rank.service->Open(call);
      ASSERT_TRUE(opened.ok()) << opened.ToString();
    });
  }
  void MirrorAll(int step) {
    EachRank([&](TestRank& rank) {
      const Status status = rank.service->Mirror(Step(static_cast<uint64_t>(step)), Bytes(rank.rank.value(), step));
      ASSERT_TRUE(status.ok()) << status.ToString();
    });
  }

  MemoryStore store;
  CancelToken cancel;
  std::vector<std::unique_ptr<TestRank>> ranks;
};

TEST_F(ReplicaDefaultsTest, MirrorsObjectsToThePartnersForTwoSteps) {
  EachRank([](TestRank& rank) {  // before the first generation there are no partners yet
    EXPECT_TRUE(rank.service->Mirror(Step(0), Bytes(rank.rank.value(), 0)).ok());
  });
  OpenAll(1);
  EXPECT_EQ(*ranks[1]->service->Mirrored(Step(0)), Bytes(1, 0));
  for (int step : {0, 1, 2, 3}) MirrorAll(step);
  const ReplicaDefaults& service = *ranks[1]->service;
  EXPECT_EQ(*service.Mirrored(Step(3)), Bytes(1, 3));
  EXPECT_EQ(*service.MirroredOf(Rank(3), Step(2)), Bytes(3, 2));
  EXPECT_EQ(service.Mirrored(Step(1)).status().code(), StatusCode::kNotFound) << "two steps are kept";
  EXPECT_EQ(service.MirroredOf(Rank(0), Step(3)).status().code(), StatusCode::kNotFound) << "no partner";
  MirrorAll(2);  // after a rollback to step 2
  EXPECT_EQ(service.Mirrored(Step(3)).status().code(), StatusCode::kNotFound) << "of a step that was given up";
}

TEST_F(ReplicaDefaultsTest, RefreshedObjectsStayWhateverAPartnerTellsUntilTheNextExchange) {
  OpenAll(1);
  for (int step : {0, 1, 2}) MirrorAll(step);
  ranks[1]->service->Refresh(Step(2), Bytes(1, 20));
  EXPECT_EQ(*ranks[1]->service->Mirrored(Step(2)), Bytes(1, 20));
  EXPECT_EQ(*ranks[1]->service->Mirrored(Step(1)), Bytes(1, 1));
  EXPECT_EQ(*ranks[3]->service->MirroredOf(Rank(1), Step(2)), Bytes(1, 2)) << "a partner has heard of nothing";
  ASSERT_TRUE(ranks[1]->service->TakeMirrored(Step(2), ranks[3]->service->PackMirrored(Step(2))).ok());
  EXPECT_EQ(*ranks[1]->service->Mirrored(Step(2)), Bytes(1, 20));
  MirrorAll(2);
  EXPECT_EQ(*ranks[1]->service->Mirrored(Step(2)), Bytes(1, 2));
}

TEST_F(ReplicaDefaultsTest, RepairsARespawnedRankWithItsMirroredObjects) {
  OpenAll(1);
  MirrorAll(4);
  MirrorAll(5);
  const auto before = DigestsOf(*ranks[2]->service);
  Respawn(2);
  OpenAll(2);
  EXPECT_NE(*before, *DigestsOf(*ranks[2]->service));
  std::atomic<uint64_t> moved{0};
  EachRank([&](TestRank& rank) {
    auto call = rank.Call(store, cancel, 2, Step(5));
    call.moves = {{.layout = 0, .destination = Rank(2), .sources = {Rank(0)}},
                  {.layout = 1, .destination = Rank(2), .sources = {Rank(0)}}};
    const Status status = ReplicaDefaults::RepairHandler(call, rank.service.get());
    EXPECT_TRUE(status.ok()) << status.ToString();
    moved += call.bytes_moved;
  });
  EXPECT_EQ(moved, ranks[2]->registry.ByteCount());
  EXPECT_EQ(*before, *DigestsOf(*ranks[2]->service));
  EXPECT_EQ(*DigestsOf(*ranks[0]->service), *DigestsOf(*ranks[2]->service));
  EXPECT_EQ(*ranks[2]->service->Mirrored(Step(5)), Bytes(2, 5));
  EXPECT_EQ(*ranks[2]->service->MirroredOf(Rank(0), Step(5)), Bytes(0, 5));
  MirrorAll(5);
}

TEST_F(ReplicaDefaultsTest, PatchesOnlyTheNamedTensors) {
  OpenAll(1);
  auto& damaged = *ranks[3]->tensors[1];
  std::fill(damaged.begin(), damaged.end(), 0.0f);
  std::atomic<uint64_t> moved{0};
  EachRank([&](TestRank& rank) {
    auto call = rank.Call(store, cancel, 1, Step(0));
    call.rung = Rung::kPatch;
    call.moves = {{.layout = 0, .destination = Rank(3), .sources = {Rank(1)}, .keys = {"b"}}};
    EXPECT_TRUE(rank.service->Repair(call).ok());
    moved += call.bytes_moved;
  });
  EXPECT_EQ(moved, damaged.size() * sizeof(float));
  EXPECT_EQ(*DigestsOf(*ranks[1]->service), *DigestsOf(*ranks[3]->service));
}

TEST_F(ReplicaDefaultsTest, WhatHasArrivedIsAskedForAgainOnlyWhereATensorHasMoved) {
  uint64_t generation = 0;
  const auto bytes_of_a_repair = [&] {
    OpenAll(++generation);
    std::atomic<uint64_t> moved{0};
    EachRank([&](TestRank& rank) {
      auto call = rank.Call(store, cancel, generation, Step(0));
      call.moves = {{.layout = 0, .destination = Rank(3), .sources = {Rank(1)}, .keys = {"b"}}};
      EXPECT_TRUE(rank.service->Repair(call).ok());
      moved += call.bytes_moved;
    });
    return moved.load();
  };
  TestRank& rank = *ranks[3];
  const uint64_t all = rank.registry.tensors().at("b").memory.size_bytes;
  EXPECT_EQ(bytes_of_a_repair(), all);
  EXPECT_EQ(bytes_of_a_repair(), 0u) << "of another attempt";
  std::vector<float> elsewhere(all / sizeof(float));
  ShardedTensor moved = rank.registry.tensors().at("b");
  moved.memory.data = elsewhere.data();
  Relocation relocation(rank.registry);
  ASSERT_TRUE(relocation.Move(moved).ok());
  rank.registry = relocation.Moved();
  EXPECT_EQ(bytes_of_a_repair(), all);
  EXPECT_EQ(*DigestsOf(*ranks[1]->service), *DigestsOf(*rank.service));
}

TEST_F(ReplicaDefaultsTest, AKeyThatIsNotRegisteredIsAnError) {
  auto call = ranks[0]->Call(store, cancel, 1, Step(0));
  call.moves = {{.layout = 0, .destination = Rank(0), .sources = {Rank(2)}, .keys = {"no such"}}};
  EXPECT_EQ(ranks[0]->service->Repair(call).code(), StatusCode::kInvalidArgument);
}

TEST_F(ReplicaDefaultsTest, AReloadNeedsALoader) {
  auto call = ranks[0]->Call(store, cancel, 1, Step(0));
  call.rung = Rung::kReload;
  EXPECT_EQ(ranks[0]->service->Repair(call).code(), StatusCode::kFailedPrecondition);
  bool called = false;
  ranks[0]->service->SetLoader(
      [](HandlerContext&, void* context) {
        *static_cast<bool*>(context) = true;
        return Status::Ok();
      },
      &called);
  HandlerRegistry handlers;
  EXPECT_TRUE(ranks[0]->service->Install(handlers).ok());
  EXPECT_TRUE(handlers.Call(HandlerKind::kRepair, call).ok());
  EXPECT_TRUE(called);
}

TEST_F(ReplicaDefaultsTest, AbortEndsAMirrorWhosePartnerNeverComesUntilTheNextOpen) {
  OpenAll(1);
  ReplicaDefaults& service = *ranks[0]->service;
  std::thread agent([&] {
    std::this_thread::sleep_for(20ms);
    service.Abort();
  });
  EXPECT_EQ(service.Mirror(Step(1), Bytes(0, 1)).code(), StatusCode::kCancelled);
  agent.join();
  EXPECT_EQ(service.Mirror(Step(1), Bytes(0, 1)).code(), StatusCode::kCancelled);
  EXPECT_TRUE(DigestsOf(service).ok()) << "survivors that dump are compared without a rebuild";
  EXPECT_EQ(service.Mirror(Step(1), Bytes(0, 1)).code(), StatusCode::kCancelled) << "its links stay aborted";
  EXPECT_TRUE(service.Mirrored(Step(1)).ok()) << "what is here needs nobody";
  OpenAll(2);
  MirrorAll(1);
}

TEST_F(ReplicaDefaultsTest, DigestsThatWereCancelledBeforeTheyBeganAreNotComputed) {
  CancelToken cancelled;
  cancelled.Cancel();
  EXPECT_EQ(ranks[0]->service->Digests(cancelled).status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(DigestsOf(*ranks[0]->service).ok()) << "only that task was over";
}

TEST_F(ReplicaDefaultsTest, AbortAndCancelEndAnOpenWhosePartnerNeverComes) {
  for (bool abort : {true, false}) {
    CancelToken superseded;
    auto call = ranks[0]->Call(store, superseded, abort ? 1 : 2, Step(0));
    std::thread agent([&] {
      std::this_thread::sleep_for(20ms);
      if (abort) ranks[0]->service->Abort();
      if (!abort) superseded.Cancel();
    });
    EXPECT_EQ(ranks[0]->service->Open(call).code(), StatusCode::kCancelled);
    agent.join();
  }
}

TEST_F(ReplicaDefaultsTest, ACancelEndsARepairWhoseSourceNeverComes) {
  for (bool destination : {true, false}) {
    CancelToken superseded;
    auto call = ranks[0]->Call(store, superseded, destination ? 1 : 2, Step(0));
    call.moves = {destination ? RepairMove{.destination = Rank(0), .sources = {Rank(2)}}
                              : RepairMove{.destination = Rank(2), .sources = {Rank(0)}}};
    std::thread agent([&] {
      std::this_thread::sleep_for(20ms);
      superseded.Cancel();
    });
    EXPECT_EQ(ranks[0]->service->Repair(call).code(), StatusCode::kCancelled);
    agent.join();
  }
}

TEST_F(ReplicaDefaultsTest, ACancelAtAnyMomentEndsARepairOnBothSides) {
  for (int round = 0; round < 30; ++round) {
    CancelToken superseded;
    std::vector<std::thread> threads;
    for (int i : {0, 2}) {
      threads.emplace_back([&, i] {
        auto call = ranks[static_cast<size_t>(i)]->Call(store, superseded, 10 + static_cast<uint64_t>(round), Step(3));
        call.moves = {{.layout = 0, .destination = Rank(2), .sources = {Rank(0)}}};
        const Status status = ranks[static_cast<size_t>(i)]->service->Repair(call);
        EXPECT_TRUE(status.ok() || status.code() == StatusCode::kCancelled) << status.ToString();
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
    superseded.Cancel();
    for (auto& thread : threads) thread.join();
  }
}

// Looks into memory that another thread is writing: for the test's timing only.
[[gnu::no_sanitize("thread")]] float Peek(const float* at) { return *const_cast<const volatile float*>(at); }

// The receiver is this process; both sources are processes of their own, and the first is killed in mid-stream.
TEST(ReplicaDefaultsProcess, AKilledSourceIsReplacedAndOnlyTheMissingBlocksAreSentAgain) {
  for (auto prefer : {LinkPreference::kSharedMemory, LinkPreference::kTcp}) {
    TemporaryDirectory directory;
    DirectoryStore store(directory.path());
    constexpr size_t kElements = 120 * kMiB / sizeof(float);
    const auto source = [&](int number, uint64_t generation) {
      TestRank rank(Rank(number), {}, 42.0f, 16);
      rank.Add("big", 7, kElements, 42.0f);
      rank.service = std::make_unique<ReplicaDefaults>(rank.registry, ReplicaOptions{.prefer = prefer});
      CancelToken cancel;
      auto call = rank.Call(store, cancel, generation, Step(9));
      call.moves = {{.layout = 7, .destination = Rank(0), .sources = {Rank(number)}}};
      return rank.service->Repair(call).ok() ? 0 : 1;
    };
    ChildProcess first([&] { return source(1, 1); });
    ChildProcess second([&] { return source(2, 2); });
    TestRank rank(Rank(0), {}, 0.0f, 16);
    rank.Add("big", 7, kElements, 0.0f);
    rank.service = std::make_unique<ReplicaDefaults>(rank.registry, ReplicaOptions{.prefer = prefer});
    CancelToken cancel;
    auto call = rank.Call(store, cancel, 1, Step(9));
    call.moves = {{.layout = 7, .destination = Rank(0), .sources = {Rank(1)}}};
    const auto& big = *rank.tensors.back();
    std::atomic<bool> over{false};
    std::thread killer([&] {  // strikes once a good part has arrived in final memory
      const size_t far = kElements * 3 / 5;
      while (Peek(&big[far]) != 42.0f + static_cast<float>(far % 1000) && !over) std::this_thread::sleep_for(100us);
      first.Signal(SIGKILL);
    });
    const Status died = rank.service->Repair(call);
    over = true;
    killer.join();
    const uint64_t moved_first = call.bytes_moved;
    if (died.ok()) {  // the kill came too late to hit the stream; nothing to prove in this round
      EXPECT_EQ(moved_first, kElements * sizeof(float));
      continue;
    }
    EXPECT_EQ(died.code(), StatusCode::kCommFailure) << died.ToString();
    call = rank.Call(store, cancel, 2, Step(9));
    call.moves = {{.layout = 7, .destination = Rank(0), .sources = {Rank(2)}}};
    const Status status = rank.service->Repair(call);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(second.Wait(), 0);
    EXPECT_LE(call.bytes_moved, kElements * sizeof(float) - 64 * kMiB) << "the first request is not sent again";
    EXPECT_EQ(big.front(), 42.0f);
    EXPECT_EQ(big.back(), 42.0f + static_cast<float>((kElements - 1) % 1000));
    TestRank good(Rank(5), {}, 42.0f, 16);
    good.Add("big", 7, kElements, 42.0f);
    EXPECT_EQ(DigestsOf(*good.service)->at(7), DigestsOf(*rank.service)->at(7));
  }
}

}  // namespace
}  // namespace kintsugi
