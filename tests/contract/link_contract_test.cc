// What every link promises (replica/stream/link.h), over every implementation.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "callbacks/state/shared_memory.h"
#include "runtime/base/random.h"
#include "tests/contract/link_fixture.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

class LinkContract : public testing::TestWithParam<std::string> {
 protected:
  LinkPair links_ = MakePair(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Links, LinkContract, testing::Values("in-process", "shared-memory", "tcp", "nccl"), KindName);

std::vector<uint8_t> Pattern(uint64_t seed, size_t size) {
  Random random(seed);
  std::vector<uint8_t> bytes(size);
  size_t at = 0;
  for (; at + 8 <= size; at += 8) {
    const uint64_t word = random.Next();
    std::memcpy(bytes.data() + at, &word, 8);
  }
  for (; at < size; ++at) bytes[at] = static_cast<uint8_t>(random.Next());
  return bytes;
}

Memory HeapMemory(std::vector<uint8_t>& bytes) { return {.data = bytes.data(), .size_bytes = bytes.size()}; }

constexpr size_t kSizes[] = {0, 1, 8, 4095, 65536, 65537, 131072, 131073, 1 << 20, (1 << 20) + 1, 5 << 20, 9999999, 3};

TEST_P(LinkContract, DeliversMessagesInOrderAndWholeInBothDirectionsAtOnce) {
  const auto talk = [](Link& link, uint64_t seed, uint64_t peer_seed) {
    std::thread sender([&] {
      for (size_t size : kSizes) {
        auto bytes = Pattern(seed + size, size);
        ASSERT_TRUE(link.Send(HeapMemory(bytes), 0, size, In(30s)).ok());
      }
    });
    for (size_t size : kSizes) {
      std::vector<uint8_t> got(size + 1, 0x5A);
      const Status status = link.Receive(got.data(), size, In(30s));
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(got.back(), 0x5A) << "written past the end";
      got.pop_back();
      EXPECT_TRUE(got == Pattern(peer_seed + size, size)) << size;
    }
    sender.join();
  };
  std::thread other([&] { talk(*links_.a, 100, 200); });
  talk(*links_.b, 200, 100);
  other.join();
}

TEST_P(LinkContract, SendsPartsOfSharedMemory) {
  auto buffer = SharedMemory::Allocate(12 << 20);
  ASSERT_TRUE(buffer.ok());
  const auto pattern = Pattern(1, buffer->memory().size_bytes);
  std::memcpy(buffer->memory().data, pattern.data(), pattern.size());
  std::thread sender([&] {
    const Memory whole = SliceOf(buffer->memory(), 0, buffer->memory().size_bytes), part = SliceOf(buffer->memory(), 4096, 6 << 20);
    EXPECT_TRUE(links_.a->Send(whole, 0, 9 << 20, In(30s)).ok());
    EXPECT_TRUE(links_.a->Send(whole, 12345, 100, In(30s)).ok());
    EXPECT_TRUE(links_.a->Send(part, 77, 3 << 20, In(30s)).ok());
  });
  const auto expect = [&](size_t offset, size_t size) {
    std::vector<uint8_t> got(size);
    ASSERT_TRUE(links_.b->Receive(got.data(), size, In(30s)).ok());
    EXPECT_EQ(std::memcmp(got.data(), pattern.data() + offset, size), 0);
  };
  expect(0, 9 << 20);
  expect(12345, 100);
  expect(4096 + 77, 3 << 20);
  sender.join();
}

class Recorder final : public PieceObserver {
 public:
  void Passed(const void* data, uint64_t size_bytes) override {
    bytes.insert(bytes.end(), static_cast<const uint8_t*>(data), static_cast<const uint8_t*>(data) + size_bytes);
  }
  std::vector<uint8_t> bytes;
};

TEST_P(LinkContract, ShowsEveryByteToBothObserversInOrder) {
  auto shared = SharedMemory::Allocate(3 << 20);
  ASSERT_TRUE(shared.ok());
  auto bytes = Pattern(9, 3 << 20);
  std::memcpy(shared->memory().data, bytes.data(), bytes.size());
  Recorder sent, received;
  for (const Memory& memory : {HeapMemory(bytes), SliceOf(shared->memory(), 0, shared->memory().size_bytes)}) {
    for (size_t size : {size_t{10}, bytes.size()}) {
      sent.bytes.clear();
      received.bytes.clear();
      std::thread sender([&] { EXPECT_TRUE(links_.a->Send(memory, 0, size, In(30s), &sent).ok()); });
      std::vector<uint8_t> got(size);
      EXPECT_TRUE(links_.b->Receive(got.data(), size, In(30s), &received).ok());
      sender.join();
      EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes.begin()));
      EXPECT_TRUE(sent.bytes == got);
      EXPECT_TRUE(received.bytes == got);
    }
  }
}

TEST_P(LinkContract, AMessageOfAnotherSizeIsDataLossAndWritesNothingBeyond) {
  for (auto [sent, expected] : {std::pair<size_t, size_t>{10, 20}, {20, 10}, {0, 5}, {3 << 20, (3 << 20) - 1}}) {
    LinkPair links = MakePair(GetParam());
    std::thread sender([&, size = sent] {
      std::vector<uint8_t> bytes(size, 1);
      (void)links.a->Send(HeapMemory(bytes), 0, size, In(5s));
    });
    std::vector<uint8_t> got(expected + 1, 0x77);
    const Status status = links.b->Receive(got.data(), expected, In(20s));
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
    EXPECT_NE(status.message().find(std::to_string(sent)), std::string::npos) << status.ToString();
    EXPECT_EQ(got.back(), 0x77);
    links.b.reset();
    sender.join();
  }
}

TEST_P(LinkContract, ADeadlineNamesThePeerAndTheLimit) {
  std::vector<uint8_t> bytes(8 << 20);
  for (const Status& status : {links_.b->Receive(bytes.data(), bytes.size(), In(60ms))}) {
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
    EXPECT_NE(status.message().find("rank 3"), std::string::npos) << status.ToString();
    EXPECT_NE(status.message().find("limit"), std::string::npos) << status.ToString();
  }
  LinkPair fresh = MakePair(GetParam());
  const Status status = fresh.a->Send(HeapMemory(bytes), 0, bytes.size(), In(60ms));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
  EXPECT_NE(status.message().find("rank 7"), std::string::npos) << status.ToString();
}

TEST_P(LinkContract, AbortEndsWaitsThatNothingElseWouldEnd) {
  std::vector<uint8_t> bytes(8 << 20), target(8 << 20);
  std::atomic<int> ended{0};
  std::thread sender([&] {
    EXPECT_EQ(links_.a->Send(HeapMemory(bytes), 0, bytes.size(), In(1000s)).code(), StatusCode::kCancelled);
    ++ended;
  });
  std::thread receiver([&] {
    EXPECT_EQ(links_.a->Receive(target.data(), target.size(), In(1000s)).code(), StatusCode::kCancelled);
    ++ended;
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(ended, 0);
  links_.a->Abort();
  sender.join();
  receiver.join();
  EXPECT_EQ(links_.a->Receive(target.data(), 1, In(1000s)).code(), StatusCode::kCancelled);
  EXPECT_EQ(links_.a->Send(HeapMemory(bytes), 0, 1, In(1000s)).code(), StatusCode::kCancelled);
}

// Both ends stream in both directions; one aborts at a random moment and goes; the other one must notice by itself, and
// nothing may be written into memory of a link that is gone.
TEST_P(LinkContract, AbortAtAnyMomentEndsBothSides) {
  Random random(17);
  for (int round = 0; round < 120; ++round) {
    LinkPair links = round == 0 ? std::move(links_) : MakePair(GetParam());
    const size_t size = size_t{1} << (10 + random.Below(13));
    const auto pause = std::chrono::microseconds(random.Below(4000));
    const auto stream = [&](Link& link, bool send) {
      std::vector<uint8_t> bytes(size);
      for (;;) {
        const Status status = send ? link.Send(HeapMemory(bytes), 0, size, In(60s))
                                   : link.Receive(bytes.data(), size, In(60s));
        if (!status.ok()) return status.code();
      }
    };
    std::vector<std::thread> peers;
    for (bool send : {true, false})
      peers.emplace_back([&, send] { EXPECT_EQ(stream(*links.b, send), StatusCode::kCommFailure); });
    std::thread own_sender([&] { EXPECT_EQ(stream(*links.a, true), StatusCode::kCancelled); });
    std::thread watchdog([&] {
      std::this_thread::sleep_for(pause);
      links.a->Abort();
    });
    EXPECT_EQ(stream(*links.a, false), StatusCode::kCancelled);
    own_sender.join();
    watchdog.join();
    links.a.reset();
    for (auto& peer : peers) peer.join();
  }
}

// Holds the receiver at the first piece until its peer has closed, where the peer can send everything meanwhile.
class Latecomer final : public PieceObserver {
 public:
  explicit Latecomer(const std::atomic<bool>& closed) : closed_(closed) {}
  void Passed(const void*, uint64_t) override {
    if (std::exchange(waited_, true)) return;
    for (int i = 0; i < 30 && !closed_; ++i) std::this_thread::sleep_for(10ms);
    std::this_thread::sleep_for(100ms);  // until this side has noticed
  }

 private:
  const std::atomic<bool>& closed_;
  bool waited_ = false;
};

TEST_P(LinkContract, WhatAPeerSentBeforeItClosedIsNotLost) {
  for (const size_t size : {1 << 20, 3 << 20}) {
    LinkPair links = MakePair(GetParam());
    auto bytes = Pattern(11, size);
    std::atomic<bool> closed{false};
    std::thread sender([&] {
      const Status sent = links.a->Send(HeapMemory(bytes), 0, size, In(30s));
      EXPECT_TRUE(sent.ok()) << sent.ToString();
      links.a.reset();
      closed = true;
    });
    Latecomer latecomer(closed);
    std::vector<uint8_t> got(size);
    const Status received = links.b->Receive(got.data(), size, In(30s), &latecomer);
    EXPECT_TRUE(received.ok()) << received.ToString();
    EXPECT_TRUE(got == bytes);
    sender.join();
  }
}

TEST_P(LinkContract, ALinkThatThePeerClosedIsACommunicationFailure) {
  std::vector<uint8_t> bytes(4 << 20);
  links_.a.reset();
  EXPECT_EQ(links_.b->Receive(bytes.data(), bytes.size(), In(30s)).code(), StatusCode::kCommFailure);
  EXPECT_EQ(links_.b->Send(HeapMemory(bytes), 0, bytes.size(), In(30s)).code(), StatusCode::kCommFailure);
}

TEST_P(LinkContract, CarriesMessagesOfMoreThanFourGibibytes) {
  if (!std::getenv("KINTSUGI_TEST_HUGE"))
    GTEST_SKIP() << "needs 4 GiB of memory and some seconds: set KINTSUGI_TEST_HUGE=1";
  constexpr uint64_t kSize = (4ull << 30) + 1024;
  const auto allocate = [] {
    return static_cast<uint8_t*>(
        mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  };
  uint8_t *source = allocate(), *target = allocate();
  ASSERT_NE(source, MAP_FAILED);
  ASSERT_NE(target, MAP_FAILED);
  source[0] = 1;
  source[1ull << 32] = 2;
  source[kSize - 1] = 3;
  std::thread sender([&] {
    const Memory memory{.data = source, .size_bytes = kSize};
    EXPECT_TRUE(links_.a->Send(memory, 0, kSize, In(120s)).ok());
  });
  const Status status = links_.b->Receive(target, kSize, In(120s));
  sender.join();
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(target[0], 1);
  EXPECT_EQ(target[1ull << 32], 2);
  EXPECT_EQ(target[kSize - 1], 3);
  EXPECT_EQ(target[kSize / 2], 0);
  munmap(source, kSize);
  munmap(target, kSize);
}

}  // namespace
}  // namespace kintsugi
