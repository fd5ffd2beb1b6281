#include "replica/stream/gloo_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <latch>
#include <thread>
#include <vector>

#include "tests/support/memory_store.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

// Runs `body(group)` on one thread per rank.
void WithGroup(int size, const std::function<void(GlooGroup&)>& body) {
  MemoryStore store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto group = GlooGroup::Connect(store, {.prefix = "g1", .rank = rank, .size = size, .deadline = In(20s)});
      ASSERT_TRUE(group.ok()) << group.status().ToString();
      body(**group);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(GlooGroup, SumsGathersAndBroadcasts) {
  for (int size : {1, 2, 3, 4}) {
    WithGroup(size, [size](GlooGroup& group) {
      for (size_t count : {1, 3, 1000, 300001}) {
        std::vector<float> data(count, static_cast<float>(group.rank() + 1));
        ASSERT_TRUE(group.AllReduceSum(data.data(), count).ok());
        EXPECT_EQ(data.front(), size * (size + 1) / 2);
        EXPECT_EQ(data.back(), data.front());
        std::vector<float> mine(count, static_cast<float>(group.rank())), all(count * size);
        ASSERT_TRUE(group.AllGather(mine.data(), count, all.data()).ok());
        for (int rank = 0; rank < size; ++rank) EXPECT_EQ(all[rank * count], rank);
        ASSERT_TRUE(group.Broadcast(mine.data(), count, size - 1).ok());
        EXPECT_EQ(mine.back(), size - 1);
      }
      ASSERT_TRUE(group.AllReduceSum(static_cast<float*>(nullptr), 0).ok());
      ASSERT_TRUE(group.Barrier().ok());
    });
  }
}

TEST(GlooGroup, SumsToTheSameBitsEveryTime) {
  for (size_t count : {1, 5, 100003}) {
    std::vector<float> results[4][3];
    for (int round = 0; round < 3; ++round) {
      WithGroup(4, [&](GlooGroup& group) {
        std::vector<float> data(count);
        for (size_t i = 0; i < count; ++i) data[i] = 1.0f / static_cast<float>(3 + i * 7 + group.rank() * 13);
        ASSERT_TRUE(group.AllReduceSum(data.data(), count).ok());
        results[group.rank()][round] = data;
      });
    }
    for (auto& of_rank : results)
      for (auto& result : of_rank)
        EXPECT_EQ(std::memcmp(result.data(), results[0][0].data(), count * sizeof(float)), 0);
  }
}

TEST(GlooGroup, AbortEndsACollectiveThatWaitsForAStoppedRank) {
  // Rank 3 never comes; and nobody destroys its group, which its peers would feel, before all have left the collective.
  std::atomic<int> left{0};
  const auto wait_for_all = [&] {
    while (left < 3) std::this_thread::sleep_for(1ms);
  };
  WithGroup(4, [&](GlooGroup& group) {
    if (group.rank() == 3) return wait_for_all();
    std::vector<float> data(1 << 20, 1.0f);
    std::thread watchdog([&] {
      std::this_thread::sleep_for(30ms);
      group.Abort();
    });
    const Status status = group.AllReduceSum(data.data(), data.size());
    watchdog.join();
    EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.ToString();
    EXPECT_EQ(group.Barrier().code(), StatusCode::kCancelled) << "the flag is sticky";
    ++left;
    wait_for_all();
  });
}

TEST(GlooGroup, APeerThatIsGoneIsACommunicationFailure) {
  std::latch connected(2);  // who leaves before the other is through fails its connecting, not its collective
  WithGroup(2, [&](GlooGroup& group) {
    connected.arrive_and_wait();
    if (group.rank() == 1) return;
    std::vector<float> data(1 << 20, 1.0f);
    EXPECT_EQ(group.AllReduceSum(data.data(), data.size()).code(), StatusCode::kCommFailure);
  });
}

TEST(GlooGroup, ConnectEndsAtItsDeadlineAndNamesTheAbsentRank) {
  MemoryStore store;
  auto group = GlooGroup::Connect(store, {.prefix = "g1", .rank = 0, .size = 2, .deadline = In(120ms)});
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(group.status().message().find("rank 1"), std::string::npos) << group.status().ToString();
}

TEST(GlooGroup, ConnectEndsWhenTheGenerationIsSuperseded) {
  MemoryStore store;
  std::thread newer([&] {
    std::this_thread::sleep_for(30ms);
    store.Cancel();
  });
  auto group = GlooGroup::Connect(store, {.prefix = "g1", .rank = 0, .size = 2, .deadline = In(60s)});
  newer.join();
  EXPECT_EQ(group.status().code(), StatusCode::kCancelled);
}

// A store through which one rank publishes its address and then dies: it never sees the peer's.
class LastWordsStore final : public Store {
 public:
  LastWordsStore(MemoryStore& inner, int peer) : inner_(inner), peer_("g1/" + std::to_string(peer)) {}
  Status Set(const std::string& key, const std::vector<uint8_t>& value) override { return inner_.Set(key, value); }
  Result<std::vector<uint8_t>> Get(const std::string& key, TimePoint) override {
    if (key == peer_) return Status(StatusCode::kUnavailable, "dies before it connects");
    return std::vector<uint8_t>{'h', 'o', 's', 't'};
  }

 private:
  MemoryStore& inner_;
  const std::string peer_;
};

// Either rank may be the one that listens, so both orders are tried, with an abort and with a deadline.
TEST(GlooGroup, ConnectToARankThatDiedAfterPublishingIsBounded) {
  for (int survivor : {0, 1}) {
    for (bool abort : {true, false}) {
      MemoryStore store;
      LastWordsStore last_words(store, survivor);
      auto victim =
          GlooGroup::Connect(last_words, {.prefix = "g1", .rank = 1 - survivor, .size = 2, .deadline = In(20s)});
      EXPECT_EQ(victim.status().code(), StatusCode::kUnavailable) << victim.status().ToString();
      CancelToken cancel;
      std::thread watchdog([&] {
        std::this_thread::sleep_for(100ms);
        if (abort) cancel.Cancel();
      });
      auto group = GlooGroup::Connect(store, {.prefix = "g1",
                                              .rank = survivor,
                                              .size = 2,
                                              .deadline = In(abort ? Duration(100s) : Duration(300ms)),
                                              .cancel = &cancel});
      watchdog.join();
      // The side that dials is refused; the side that listens waits.
      const StatusCode code = group.status().code();
      EXPECT_TRUE(code == StatusCode::kCommFailure ||
                  code == (abort ? StatusCode::kCancelled : StatusCode::kDeadlineExceeded))
          << group.status().ToString();
    }
  }
}

TEST(GlooGroup, SeveralGroupsShareOneDeviceAndItsAbort) {
  MemoryStore store;
  std::vector<std::thread> threads;
  for (int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      auto device = AbortableDevice::Create();
      ASSERT_TRUE(device.ok());
      auto a = GlooGroup::Connect(
          store, {.prefix = "g1/a", .rank = rank, .size = 2, .deadline = In(20s), .device = *device});
      auto b = GlooGroup::Connect(
          store, {.prefix = "g1/b", .rank = rank, .size = 2, .deadline = In(20s), .device = *device});
      ASSERT_TRUE(a.ok() && b.ok());
      float x = 1, y = 2;
      EXPECT_TRUE((*a)->AllReduceSum(&x, 1).ok() && (*b)->AllReduceSum(&y, 1).ok());
      EXPECT_EQ(x, 2);
      EXPECT_EQ(y, 4);
      (*a)->Abort();
      EXPECT_EQ((*b)->Barrier().code(), StatusCode::kCancelled);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(GlooGroup, RefusesAnAddressThatIsNotThisHosts) {
  EXPECT_EQ(AbortableDevice::Create({.interface_name = "no-such-if"}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kintsugi
