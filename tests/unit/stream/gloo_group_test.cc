#include "replica/stream/gloo_group.h"

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <latch>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "replica/stream/abortable_gloo.h"
#include "replica/stream/gloo_rendezvous.h"
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
  // Nine and thirteen: members that are not connected to all others, and sizes that are no power of two.
  for (int size : {1, 2, 3, 4, 9, 13}) {
    WithGroup(size, [size](GlooGroup& group) {
      for (size_t count : {1, 3, 1000, size > 4 ? 5000 : 300001}) {
        std::vector<float> data(count, static_cast<float>(group.rank() + 1));
        ASSERT_TRUE(group.AllReduceSum(data.data(), count).ok());
        EXPECT_EQ(data.front(), size * (size + 1) / 2);
        EXPECT_EQ(data.back(), data.front());
        std::vector<float> mine(count, static_cast<float>(group.rank())), all(count * size);
        ASSERT_TRUE(group.AllGather(mine.data(), count, all.data()).ok());
        for (int rank = 0; rank < size; ++rank) EXPECT_EQ(all[rank * count], rank);
        for (int root = 0; root < size; ++root) {
          std::fill(mine.begin(), mine.end(), static_cast<float>(group.rank()));
          ASSERT_TRUE(group.Broadcast(mine.data(), count, root).ok());
          EXPECT_EQ(mine.back(), root);
        }
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

// ---- from one member to another --------------------------------------------------------------------------------------

std::vector<uint8_t> Pattern(size_t size, int seed) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 251 + static_cast<size_t>(seed));
  return bytes;
}

TEST(GlooGroup, BytesGoRoundTheStagesOfAPipelineInTheirOrder) {
  for (const int size : {2, 3, 5}) {
    WithGroup(size, [size](GlooGroup& group) {
      const int next = (group.rank() + 1) % size, previous = (group.rank() + size - 1) % size;
      for (int round = 0; round < 3; ++round) {
        for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{5} << 20}) {
          std::vector<uint8_t> data = Pattern(bytes, round);
          if (group.rank() == 0) ASSERT_TRUE(group.Send(data.data(), bytes, next).ok());
          std::fill(data.begin(), data.end(), uint8_t{0});
          const Status received = group.Receive(data.data(), bytes, previous);
          ASSERT_TRUE(received.ok()) << received.ToString();
          EXPECT_EQ(data, Pattern(bytes, round));
          if (group.rank() != 0) ASSERT_TRUE(group.Send(data.data(), bytes, next).ok());
        }
        float sum = 1;
        ASSERT_TRUE(group.AllReduceSum(&sum, 1).ok()) << "collectives in between";
        EXPECT_EQ(sum, size);
      }
    });
  }
}

TEST(GlooGroup, WhatDoesNotFitIsNamedOnBothSidesAndTheGroupGoesOn) {
  WithGroup(2, [](GlooGroup& group) {
    const int peer = 1 - group.rank();
    std::vector<uint8_t> data(100, 7);
    const auto both = [&](bool first_sends, bool second_sends, size_t first, size_t second) {
      const bool sends = group.rank() == 0 ? first_sends : second_sends;
      const size_t bytes = group.rank() == 0 ? first : second;
      const Status met = sends ? group.Send(data.data(), bytes, peer) : group.Receive(data.data(), bytes, peer);
      EXPECT_EQ(met.code(), StatusCode::kInvalidArgument);
      for (const std::string& part : {std::to_string(first) + " bytes", std::to_string(second) + " bytes",
                                      "rank " + std::to_string(peer), "rank " + std::to_string(group.rank()) + " of 2"})
        EXPECT_NE(met.message().find(part), std::string::npos) << met.message();
    };
    both(true, false, 100, 96);
    both(true, false, 4, 100);
    both(false, true, 0, 1);
    both(true, true, 100, 100);
    both(false, false, 100, 96);
    EXPECT_EQ(data, std::vector<uint8_t>(100, 7)) << "nothing was written";
    data.assign(100, static_cast<uint8_t>(group.rank()));
    EXPECT_TRUE((group.rank() == 0 ? group.Send(data.data(), 100, 1) : group.Receive(data.data(), 100, 0)).ok());
    EXPECT_EQ(data, std::vector<uint8_t>(100, 0));
  });
}

TEST(GlooGroup, WhoIsNoOtherMemberIsRefusedByName) {
  WithGroup(2, [](GlooGroup& group) {
    for (const int peer : {-1, 2, group.rank()}) {
      uint8_t byte = 0;
      EXPECT_EQ(group.Send(&byte, 1, peer).code(), StatusCode::kInvalidArgument) << peer;
      EXPECT_EQ(group.Receive(&byte, 1, peer).code(), StatusCode::kInvalidArgument) << peer;
    }
    EXPECT_TRUE(group.Barrier().ok()) << "nothing has happened";
  });
  WithGroup(6, [](GlooGroup& group) {
    uint8_t byte = 0;
    const int opposite = (group.rank() + 3) % 6;  // no distance of the ring or the tree
    const Status status = group.rank() < 3 ? group.Send(&byte, 1, opposite) : group.Receive(&byte, 1, opposite);
    for (const std::string& part : {"rank " + std::to_string(opposite), std::string("GlooMembers::pairs")})
      EXPECT_NE(status.message().find(part), std::string::npos) << status.ToString();
    EXPECT_TRUE(group.Barrier().ok());
  });
}

TEST(GlooGroup, AbortEndsWhoWaitsToSendOrToReceive) {
  for (const bool sends : {true, false}) {
    std::atomic<bool> left{false};  // nobody destroys its group before: a peer would feel that
    WithGroup(2, [&](GlooGroup& group) {
      if (group.rank() == 1) {
        while (!left) std::this_thread::sleep_for(1ms);
        return;
      }
      std::vector<uint8_t> data(1 << 20, 1);
      std::thread watchdog([&] {
        std::this_thread::sleep_for(10ms);
        group.Abort();
      });
      const Status status = sends ? group.Send(data.data(), data.size(), 1) : group.Receive(data.data(), data.size(), 1);
      watchdog.join();
      EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.ToString();
      EXPECT_EQ(group.Send(data.data(), 1, 1).code(), StatusCode::kCancelled) << "the flag is sticky";
      left = true;
    });
  }
}

// Whenever it comes: both sides are in the middle of large messages.
TEST(GlooGroup, AbortAtAnyMomentOfSendingEndsBothSides) {
  std::mt19937 random(1);
  for (int round = 0; round < 10; ++round) {
    const auto delay = std::chrono::microseconds(random() % 20000);
    std::latch left(2);
    WithGroup(2, [&](GlooGroup& group) {
      std::vector<uint8_t> data(4 << 20, 1);
      std::thread watchdog([&] {
        std::this_thread::sleep_for(delay);
        group.Abort();
      });
      Status status;
      while (status.ok())
        status = group.rank() == 0 ? group.Send(data.data(), data.size(), 1) : group.Receive(data.data(), data.size(), 0);
      // Who is not aborted yet may feel that the other is.
      EXPECT_TRUE(status.code() == StatusCode::kCancelled || status.code() == StatusCode::kCommFailure) << status.ToString();
      watchdog.join();
      left.arrive_and_wait();
    });
  }
}

TEST(GlooGroup, APeerThatIsGoneEndsWhoWaitsForIt) {
  for (const bool sends : {true, false}) {
    std::latch connected(2);
    WithGroup(2, [&](GlooGroup& group) {
      connected.arrive_and_wait();
      if (group.rank() == 1) return;
      std::vector<uint8_t> data(1 << 20, 1);
      const Status status = sends ? group.Send(data.data(), data.size(), 1) : group.Receive(data.data(), data.size(), 1);
      EXPECT_EQ(status.code(), StatusCode::kCommFailure) << status.ToString();
    });
  }
}

// ---- connecting ------------------------------------------------------------------------------------------------------

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

// Of two the one with the higher address dials, and knows whom; who waits to be dialed does not.
TEST(GlooGroup, ConnectNamesWhomItDialedInVain) {
  for (const bool dials : {true, false}) {
    MemoryStore store;
    LastWordsStore last_words(store, 0);
    const RankAddress low{.hostname = "127.0.0.1"}, high{.hostname = "127.0.0.2"};
    auto victim = GlooGroup::Connect(
        last_words, {.prefix = "g1", .rank = 1, .size = 2, .deadline = In(20s), .address = dials ? low : high});
    EXPECT_EQ(victim.status().code(), StatusCode::kUnavailable) << victim.status().ToString();
    std::vector<UnreachedPeer> unreached;
    auto group = GlooGroup::Connect(store, {.prefix = "g1",
                                            .rank = 0,
                                            .size = 2,
                                            .deadline = In(300ms),
                                            .address = dials ? high : low,
                                            .unreached = &unreached});
    EXPECT_FALSE(group.ok());
    ASSERT_EQ(unreached.size(), dials ? 1u : 0u) << group.status().ToString();
    if (!dials) continue;
    EXPECT_EQ(unreached[0].rank, Rank(1));
    EXPECT_GT(unreached[0].port, 0);
  }
}

TEST(GlooGroup, SeveralGroupsShareOneDeviceAndItsAbort) {
  MemoryStore store;
  std::vector<std::thread> threads;
  for (int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      auto device = AbortableDevice::Create();
      ASSERT_TRUE(device.ok());
      auto a = GlooGroup::Connect(store,
                                  {.prefix = "g1/a", .rank = rank, .size = 2, .deadline = In(20s), .device = *device});
      auto b = GlooGroup::Connect(store,
                                  {.prefix = "g1/b", .rank = rank, .size = 2, .deadline = In(20s), .device = *device});
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

TEST(GlooGroup, ConnectsToTheMembersItsCollectivesTalkTo) {
  for (int size = 1; size <= 70; ++size) {
    std::vector<std::vector<int>> peers;
    for (int rank = 0; rank < size; ++rank) peers.push_back(GlooNeighbours(rank, size, GlooPairs::kRingAndTree));
    for (int rank = 0; rank < size; ++rank) {
      const std::set<int> mine(peers[rank].begin(), peers[rank].end());
      EXPECT_EQ(mine.count(rank), 0u);
      EXPECT_LE(mine.size(), 2 * std::ceil(std::log2(size)));
      for (int peer : mine) EXPECT_EQ(std::count(peers[peer].begin(), peers[peer].end(), rank), 1) << "both or none";
      for (int distance = 1; distance < size; distance *= 2) EXPECT_EQ(mine.count((rank + distance) % size), 1u);
    }
    EXPECT_EQ(GlooNeighbours(0, size, GlooPairs::kEvery).size(), static_cast<size_t>(size - 1));
    const std::set<int> next = size == 1 ? std::set<int>{} : std::set<int>{1, size - 1};
    const std::vector<int> ring = GlooNeighbours(0, size, GlooPairs::kRing);
    EXPECT_EQ(std::set<int>(ring.begin(), ring.end()), next);
  }
}

TEST(GlooGroup, ACollectiveBeyondItsConnectionsIsRefusedUnlessEveryPairWasAskedFor) {
  for (const GlooPairs pairs : {GlooPairs::kRing, GlooPairs::kRingAndTree, GlooPairs::kEvery}) {
    const bool every_pair = pairs == GlooPairs::kEvery;
    MemoryStore store;
    std::vector<std::thread> threads;
    std::vector<int> all(6);
    std::iota(all.begin(), all.end(), 0);
    for (int rank : all) {
      threads.emplace_back([&, rank] {
        const GlooJoin join{.prefix = "g1", .rank = rank, .deadline = In(20s)};
        auto groups = GlooGroup::ConnectAll(store, join, {{"all", all, pairs}});
        ASSERT_TRUE(groups.ok()) << groups.status().ToString();
        int value = rank;
        const auto buffer = groups->front()->context()->createUnboundBuffer(&value, sizeof(value));
        const int opposite = (rank + 3) % 6;
        try {
          if (rank < 3) {
            buffer->send(opposite, 7);
            buffer->waitSend();
          } else {
            buffer->recv(opposite, 7);
            buffer->waitRecv();
            EXPECT_EQ(value, opposite);
          }
          EXPECT_TRUE(every_pair);
        } catch (const std::exception& e) {
          EXPECT_FALSE(every_pair);
          EXPECT_NE(std::string(e.what()).find("not connected to rank " + std::to_string(opposite)), std::string::npos)
              << e.what();
        }
        const Status barrier = groups->front()->Barrier();
        if (pairs == GlooPairs::kRing)
          EXPECT_NE(barrier.ToString().find("GlooMembers::pairs"), std::string::npos) << barrier.ToString();
        else
          EXPECT_TRUE(barrier.ok()) << barrier.ToString();
        float sum = 1;
        std::vector<float> gathered(6);
        EXPECT_TRUE(groups->front()->AllReduceSum(&sum, 1).ok());
        EXPECT_TRUE(groups->front()->AllGather(&sum, 1, gathered.data()).ok());
        EXPECT_EQ(gathered, std::vector<float>(6, 6.0f));
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

// Counts what a rank asks of it.
class CountingStore final : public Store {
 public:
  explicit CountingStore(MemoryStore& inner) : inner_(inner) {}
  Status Set(const std::string& key, const std::vector<uint8_t>& value) override {
    ++sets;
    return inner_.Set(key, value);
  }
  Result<std::vector<uint8_t>> Get(const std::string& key, TimePoint deadline) override {
    keys.insert(key);
    return inner_.Get(key, deadline);
  }

  int sets = 0;
  std::set<std::string> keys;

 private:
  MemoryStore& inner_;
};

TEST(GlooGroup, AllGroupsOfARankMeetThroughOnePublication) {
  constexpr int kSize = 8;
  MemoryStore store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      std::vector<int> world(kSize), half;
      std::iota(world.begin(), world.end(), 0);
      for (int other = rank % 2; other < kSize; other += 2) half.push_back(other);
      CountingStore counting(store);
      const GlooJoin join{.prefix = "g1", .rank = rank, .deadline = In(20s)};
      auto groups = GlooGroup::ConnectAll(counting, join, {{"world", world}, {"half", half}});
      ASSERT_TRUE(groups.ok()) << groups.status().ToString();
      EXPECT_EQ(counting.sets, 1);
      EXPECT_LE(counting.keys.size(), 6u) << "its peers in both groups: 1, 2 and 4 to either side";
      float world_sum = 1, half_sum = static_cast<float>(rank % 2);
      ASSERT_TRUE((*groups)[0]->AllReduceSum(&world_sum, 1).ok());
      ASSERT_TRUE((*groups)[1]->AllReduceSum(&half_sum, 1).ok());
      EXPECT_EQ(world_sum, kSize);
      EXPECT_EQ(half_sum, rank % 2 * kSize / 2);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(GlooGroup, RanksThatDifferAboutAGroupAreToldSo) {
  MemoryStore store;
  std::vector<std::thread> threads;
  for (int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      const GlooJoin join{.prefix = "g1", .rank = rank, .deadline = In(20s)};
      auto groups = GlooGroup::ConnectAll(store, join, {{rank == 0 ? "pair" : "other", {0, 1}}});
      EXPECT_EQ(groups.status().code(), StatusCode::kInvalidArgument) << groups.status().ToString();
      EXPECT_NE(groups.status().message().find("rank " + std::to_string(1 - rank)), std::string::npos);
      EXPECT_EQ(GlooGroup::ConnectAll(store, join, {{"without", {7}}}).status().code(), StatusCode::kInvalidArgument);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(GlooGroup, AnAddressThatIsNoneIsACommunicationFailure) {
  MemoryStore store;
  ASSERT_TRUE(store.Set("g1/1", {1, 2, 3, 4}).ok());
  auto group = GlooGroup::Connect(store, {.prefix = "g1", .rank = 0, .size = 2, .deadline = In(20s)});
  EXPECT_EQ(group.status().code(), StatusCode::kCommFailure) << group.status().ToString();
}

// Whenever the abort comes, every rank leaves, and ends what it had connected.
TEST(GlooGroup, AnAbortAtAnyMomentOfConnectingEndsIt) {
  constexpr int kSize = 5, kRounds = 20;
  std::mt19937 random(1);
  for (int round = 0; round < kRounds; ++round) {
    MemoryStore store;
    const auto delay = std::chrono::microseconds(random() % 6000);
    std::vector<CancelToken> cancel(kSize);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kSize; ++rank) {
      threads.emplace_back([&, rank] {
        auto group = GlooGroup::Connect(
            store, {.prefix = "g1", .rank = rank, .size = kSize, .deadline = In(60s), .cancel = &cancel[rank]});
        EXPECT_NE(group.status().code(), StatusCode::kDeadlineExceeded) << group.status().ToString();
      });
    }
    std::this_thread::sleep_for(delay);
    for (CancelToken& token : cancel) token.Cancel();
    for (auto& thread : threads) thread.join();
  }
}

TEST(GlooGroup, RefusesAnAddressThatIsNotThisHosts) {
  EXPECT_EQ(AbortableDevice::Create({.interface_name = "no-such-if"}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kintsugi
