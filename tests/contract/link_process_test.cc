// What links between processes promise when the other process dies or falls silent, and how MakeLink chooses.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "callbacks/state/shared_memory.h"
#include "replica/links/make_link.h"
#include "tests/contract/link_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/directory_store.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

class LinkProcess : public testing::TestWithParam<std::string> {
 protected:
  // Rank 3 runs `body` in a child of its own; this process is rank 7 and opens its end.
  std::unique_ptr<Link> Open() {
    auto link = MakeLink(store_, OptionsFor(GetParam(), Rank(7), Rank(3)));
    EXPECT_TRUE(link.ok()) << link.status().ToString();
    EXPECT_EQ((*link)->kind(), GetParam());
    return std::move(link).value();
  }
  std::unique_ptr<ChildProcess> Fork(const std::function<int(Link&)>& body) {
    return std::make_unique<ChildProcess>([&] {
      auto link = MakeLink(store_, OptionsFor(GetParam(), Rank(3), Rank(7)));
      return link.ok() ? body(**link) : 99;
    });
  }

  TemporaryDirectory directory_;
  DirectoryStore store_{directory_.path()};
};

INSTANTIATE_TEST_SUITE_P(Links, LinkProcess, testing::Values("shared-memory", "tcp", "nccl"), KindName);

TEST_P(LinkProcess, CarriesHeapAndSharedMemoryBetweenProcesses) {
  constexpr size_t kSize = 7 << 20;
  auto child = Fork([](Link& link) {
    auto shared = SharedMemory::Allocate(kSize);
    std::vector<uint8_t> heap(kSize, 0x11);
    std::memset(shared->memory().data, 0x22, kSize);
    const Memory in_heap{.data = heap.data(), .size_bytes = kSize};
    if (!link.Send(in_heap, 0, kSize, In(30s)).ok()) return 1;
    if (!link.Send(SliceOf(shared->memory(), 0, kSize), 0, kSize, In(30s)).ok()) return 2;
    uint8_t bye = 0;
    return link.Receive(&bye, 1, In(30s)).ok() ? bye : 3;
  });
  auto link = Open();
  std::vector<uint8_t> got(kSize);
  ASSERT_TRUE(link->Receive(got.data(), kSize, In(30s)).ok());
  EXPECT_TRUE(got == std::vector<uint8_t>(kSize, 0x11));
  ASSERT_TRUE(link->Receive(got.data(), kSize, In(30s)).ok());
  EXPECT_TRUE(got == std::vector<uint8_t>(kSize, 0x22));
  const uint8_t bye = 42;
  EXPECT_TRUE(SendBytes(*link, &bye, 1, In(30s)).ok());
  EXPECT_EQ(child->Wait(), 42);
}

TEST_P(LinkProcess, AKilledPeerEndsAReceive) {
  auto child = Fork([](Link&) { return pause(); });
  auto link = Open();
  std::thread killer([&] {
    std::this_thread::sleep_for(20ms);
    child->Signal(SIGKILL);
  });
  std::vector<uint8_t> bytes(8 << 20);
  const Status status = link->Receive(bytes.data(), bytes.size(), In(1000s));
  killer.join();
  EXPECT_EQ(status.code(), StatusCode::kCommFailure) << status.ToString();
}

TEST_P(LinkProcess, AKilledPeerEndsASendOfHeapAndOfSharedMemory) {
  for (bool shared : {false, true}) {
    TemporaryDirectory directory;
    DirectoryStore store(directory.path());
    ChildProcess child([&] {
      auto link = MakeLink(store, OptionsFor(GetParam(), Rank(3), Rank(7)));
      return link.ok() ? pause() : 99;
    });
    auto link = MakeLink(store, OptionsFor(GetParam(), Rank(7), Rank(3)));
    ASSERT_TRUE(link.ok());
    auto buffer = SharedMemory::Allocate(8 << 20);
    Memory memory = SliceOf(buffer->memory(), 0, buffer->memory().size_bytes);
    if (!shared) memory.kind = MemoryKind::kHeap;
    std::thread killer([&] {
      std::this_thread::sleep_for(20ms);
      child.Signal(SIGKILL);
    });
    EXPECT_EQ((*link)->Send(memory, 0, memory.size_bytes, In(1000s)).code(), StatusCode::kCommFailure);
    killer.join();
  }
}

TEST_P(LinkProcess, AStoppedPeerEndsAtTheDeadlineAndAtAnAbort) {
  auto child = Fork([](Link&) { return pause(); });
  auto link = Open();
  child->Signal(SIGSTOP);
  std::vector<uint8_t> bytes(8 << 20);
  std::thread watchdog([&] {
    std::this_thread::sleep_for(100ms);
    link->Abort();
  });
  EXPECT_EQ(link->Receive(bytes.data(), bytes.size(), In(1000s)).code(), StatusCode::kCancelled);
  watchdog.join();
  link.reset();  // must not wait for the stopped process either
}

TEST_P(LinkProcess, AStoppedPeerEndsAtTheDeadline) {
  auto child = Fork([](Link&) { return pause(); });
  auto link = Open();
  child->Signal(SIGSTOP);
  std::vector<uint8_t> bytes(64 << 20);
  const Memory memory{.data = bytes.data(), .size_bytes = bytes.size()};
  const Status status = link->Send(memory, 0, memory.size_bytes, In(100ms));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
  EXPECT_NE(status.message().find("rank 3"), std::string::npos);
}

TEST_P(LinkProcess, MessagesInTheMiddleOfAStreamSurviveNoKillUnnoticed) {
  // The child streams for ever; wherever the kill strikes, the receiver sees whole messages and then the failure.
  for (int round = 0; round < 8; ++round) {
    TemporaryDirectory directory;
    DirectoryStore store(directory.path());
    constexpr size_t kSize = 3 << 20;
    ChildProcess child([&] {
      auto link = MakeLink(store, OptionsFor(GetParam(), Rank(3), Rank(7)));
      if (!link.ok()) return 99;
      auto buffer = SharedMemory::Allocate(kSize);
      for (uint8_t value = 1;; ++value) {
        std::memset(buffer->memory().data, value, kSize);
        if (!(*link)->Send(SliceOf(buffer->memory(), 0, kSize), 0, kSize, In(30s)).ok()) return 1;
      }
    });
    auto link = MakeLink(store, OptionsFor(GetParam(), Rank(7), Rank(3)));
    ASSERT_TRUE(link.ok());
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(500 + 2500 * round));
      child.Signal(SIGKILL);
    });
    std::vector<uint8_t> got(kSize);
    Status status;
    for (uint8_t value = 1;; ++value) {
      status = (*link)->Receive(got.data(), kSize, In(30s));
      if (!status.ok()) break;
      EXPECT_TRUE(got == std::vector<uint8_t>(kSize, value));
    }
    killer.join();
    EXPECT_EQ(status.code(), StatusCode::kCommFailure) << status.ToString();
  }
}

TEST(SharedMemoryLink, FallsBackToTheRingWhereTheFileMayShrink) {
  LinkPair links = MakePair("shared-memory");
  constexpr size_t kSize = 2 << 20;
  const int fd = memfd_create("unsealed", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, kSize), 0);
  void* data = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  std::memset(data, 0x33, kSize);
  const Memory memory{.data = data, .size_bytes = kSize, .kind = MemoryKind::kShared, .shared_fd = fd};
  std::thread sender([&] {
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(links.a->Send(memory, 0, kSize, In(30s)).ok());
  });
  std::vector<uint8_t> got(kSize);
  for (int i = 0; i < 2; ++i) {
    std::fill(got.begin(), got.end(), 0);
    EXPECT_TRUE(links.b->Receive(got.data(), kSize, In(30s)).ok());
    EXPECT_TRUE(got == std::vector<uint8_t>(kSize, 0x33));
  }
  sender.join();
  munmap(data, kSize);
  close(fd);
}

// Opens both ends with the two preferences; gives both results.
std::pair<Status, Status> OpenWith(LinkPreference low, LinkPreference high, std::string* kind) {
  MemoryStore store;
  LinkOptions a = OptionsFor("", Rank(3), Rank(7)), b = OptionsFor("", Rank(7), Rank(3));
  a.prefer = low;
  b.prefer = high;
  // Both ends live until both are open: an end that is gone again resets the other, which may still be connecting.
  Result<std::unique_ptr<Link>> link_a = Status(StatusCode::kInternal, "not opened");
  std::thread other([&] { link_a = MakeLink(store, a); });
  const auto link_b = MakeLink(store, b);
  other.join();
  if (link_a.ok()) *kind = (*link_a)->kind();
  if (link_b.ok()) {
    EXPECT_EQ((*link_b)->kind(), *kind);
  }
  return {link_a.status(), link_b.status()};
}

TEST(MakeLink, PicksSharedMemoryByItself) {
  std::string kind;
  auto [a, b] = OpenWith(LinkPreference::kAutomatic, LinkPreference::kAutomatic, &kind);
  EXPECT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(kind, "shared-memory");
}

TEST(MakeLink, TakesTcpWhereOneSideWantsIt) {
  for (bool low : {true, false}) {
    std::string kind;
    auto [a, b] = OpenWith(low ? LinkPreference::kTcp : LinkPreference::kAutomatic,
                           low ? LinkPreference::kAutomatic : LinkPreference::kTcp, &kind);
    EXPECT_TRUE(a.ok() && b.ok()) << a.ToString() << b.ToString();
    EXPECT_EQ(kind, "tcp");
  }
}

TEST(MakeLink, RefusesWhatBothSidesTogetherForbid) {
  std::string kind;
  auto [a, b] = OpenWith(LinkPreference::kSharedMemory, LinkPreference::kTcp, &kind);
  EXPECT_EQ(a.code(), StatusCode::kFailedPrecondition) << a.ToString();
  EXPECT_EQ(b.code(), StatusCode::kFailedPrecondition) << b.ToString();
}

TEST(MakeLink, EndsAtItsDeadlineAndAtACancelAndNamesThePeer) {
  for (Rank self : {Rank(3), Rank(7)}) {
    MemoryStore store;
    LinkOptions options = OptionsFor("tcp", self, Rank(10 - self.value()));
    options.deadline = In(80ms);
    const Status late = MakeLink(store, options).status();
    EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded) << late.ToString();
    EXPECT_NE(late.message().find("to rank " + options.peer.ToString()), std::string::npos) << late.ToString();
    CancelToken cancel;
    options.name = "another";
    options.deadline = In(1000s);
    options.cancel = &cancel;
    std::thread newer([&] {
      std::this_thread::sleep_for(20ms);
      cancel.Cancel();
    });
    EXPECT_EQ(MakeLink(store, options).status().code(), StatusCode::kCancelled);
    newer.join();
  }
}

}  // namespace
}  // namespace kintsugi
