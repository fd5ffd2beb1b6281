// The host's side of the NCCL link and groups, over fakes of libnccl and libcuda (tests/support/fake_gpu). Nothing here
// says what a device does.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "callbacks/state/receive_ledger.h"
#include "kernels/host_checksum.h"
#include "replica/links/make_link.h"
#include "replica/stream/cuda_driver.h"
#include "replica/stream/nccl_groups.h"
#include "replica/stream/nccl_link.h"
#include "replica/stream/state_stream.h"
#include "tests/support/fake_gpu/stream_kernels.h"
#include "tests/support/memory_log.h"
#include "tests/support/memory_store.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

// Sets an environment variable for a scope.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Setting() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class Nccl : public testing::Test {
 protected:
  Nccl() {
    api_ = LoadNccl(FAKE_GPU).value();
    device_ = CudaDevice::Open(0, FAKE_GPU).value();
  }

  // The ends of a link between ranks 1 and 2.
  std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> Pair(uint64_t piece_bytes = 1000, int in_flight = 2,
                                                               std::shared_ptr<const ByteKernels> kernels = nullptr) {
    MemoryStore store;
    const auto open = [&](int self, int peer) {
      auto link = MakeNcclLink(store, api_, device_,
                               {.prefix = "pair",
                                .self = Rank(self),
                                .peer = Rank(peer),
                                .deadline = In(30s),
                                .piece_bytes = piece_bytes,
                                .in_flight = in_flight,
                                .kernels = kernels});
      EXPECT_TRUE(link.ok()) << link.status().ToString();
      return link.ok() ? std::move(link).value() : nullptr;
    };
    std::unique_ptr<Link> low;
    std::thread other([&] { low = open(1, 2); });
    auto high = open(2, 1);
    other.join();
    return {std::move(low), std::move(high)};
  }

  uint8_t* DeviceMemory(size_t size, int fill) {
    uint64_t at = 0;
    EXPECT_EQ(device_->driver().memory_allocate(&at, size), 0);
    std::memset(reinterpret_cast<void*>(at), fill, size);
    return reinterpret_cast<uint8_t*>(at);
  }
  void Free(uint8_t* memory) { EXPECT_EQ(device_->driver().memory_free(reinterpret_cast<uint64_t>(memory)), 0); }

  std::shared_ptr<const NcclApi> api_;
  std::shared_ptr<CudaDevice> device_;
};

TEST_F(Nccl, ALibraryThatIsMissingTooOldOrLackingSaysSo) {
  const auto missing = LoadNccl("/nowhere/libnccl.so.2").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("KINTSUGI_NCCL_LIBRARY"), std::string::npos) << missing.ToString();
  const auto old = LoadNccl(FAKE_NCCL_2_17).status();
  EXPECT_EQ(old.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(old.message().find("21701"), std::string::npos) << old.ToString();
  const auto lacking = LoadNccl(FAKE_NCCL_WITHOUT_ABORT).status();
  EXPECT_EQ(lacking.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(lacking.message().find("ncclCommAbort"), std::string::npos) << lacking.ToString();
  EXPECT_EQ(CudaDevice::Open(0, "/nowhere/libcuda.so.1").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(CudaDevice::Open(7, FAKE_GPU).status().code(), StatusCode::kUnavailable);
}

TEST_F(Nccl, WhatNewerLibrariesAddIsFoundWhereItIs) {
  EXPECT_TRUE(api_->revoke && api_->init_rank_scalable);
  const auto older = LoadNccl(FAKE_NCCL_2_19).value();
  EXPECT_FALSE(older->revoke || older->init_rank_scalable);
  EXPECT_EQ(NcclVersionText(older->version), "2.19.3");
}

TEST_F(Nccl, TheVariableNamesTheLibraryAndNoOtherIsTakenInItsPlace) {
  const Setting variable("KINTSUGI_NCCL_LIBRARY", FAKE_NCCL_2_19);
  EXPECT_EQ(LoadNccl().value()->name, FAKE_NCCL_2_19);
  const Setting wrong("KINTSUGI_NCCL_LIBRARY", "/nowhere/libnccl.so.2");
  EXPECT_EQ(LoadNccl().status().code(), StatusCode::kNotFound);
}

TEST_F(Nccl, MessagesOfManyPiecesCrossBetweenDeviceAndHostMemory) {
  for (const char* progress : {"0", "2"}) {
    const Setting in_progress("FAKE_NCCL_PROGRESS_MS", progress);
    auto [low, high] = Pair();
    constexpr size_t kSize = 10500;
    uint8_t *source = DeviceMemory(kSize, 0), *target = DeviceMemory(kSize + 1, 0x77);
    std::vector<uint8_t> heap(kSize), got(kSize);
    for (size_t i = 0; i < kSize; ++i) source[i] = heap[i] = static_cast<uint8_t>(i * 7 + i / 256);
    struct Watch final : PieceObserver {
      void Passed(const void* data, uint64_t size) override {
        bytes.insert(bytes.end(), static_cast<const uint8_t*>(data), static_cast<const uint8_t*>(data) + size);
      }
      std::vector<uint8_t> bytes;
    } sent, received;
    std::thread sender([&, &link = *low] {
      const Memory on_device{.data = source, .size_bytes = kSize, .kind = MemoryKind::kDevice, .device = 0};
      EXPECT_TRUE(link.Send(on_device, 0, kSize, In(30s)).ok());
      EXPECT_TRUE(link.Send(on_device, 500, kSize - 500, In(30s), &sent).ok());
      EXPECT_TRUE(link.Send({.data = heap.data(), .size_bytes = kSize}, 0, kSize, In(30s)).ok());
    });
    ASSERT_TRUE(high->Receive(got.data(), kSize, In(30s)).ok());
    EXPECT_EQ(got, heap);
    ASSERT_TRUE(high->Receive(target, kSize - 500, In(30s), &received).ok());
    EXPECT_EQ(std::memcmp(target, heap.data() + 500, kSize - 500), 0);
    ASSERT_TRUE(high->Receive(target, kSize, In(30s)).ok());
    EXPECT_EQ(std::memcmp(target, heap.data(), kSize), 0);
    EXPECT_EQ(target[kSize], 0x77);
    sender.join();
    EXPECT_EQ(sent.bytes, std::vector<uint8_t>(heap.begin() + 500, heap.end()));
    EXPECT_EQ(received.bytes, sent.bytes);
    low.reset(), high.reset();
    Free(source), Free(target);
  }
}

// Takes checksums; bytes that come all the same are a failure.
class SumsOnly final : public PieceObserver {
 public:
  void Passed(const void*, uint64_t) override { ADD_FAILURE() << "bytes were copied to the host"; }
  uint64_t WantsBlockSums() const override { return kSumBlockBytesMin; }
  void PassedSums(const uint64_t* sums, uint64_t count) override { all.insert(all.end(), sums, sums + count); }
  std::vector<uint64_t> all;
};

TEST_F(Nccl, DeviceMemoryIsChecksummedOnTheDevice) {
  constexpr size_t kSize = 5 * kSumBlockBytesMin + 77;
  auto [low, high] = Pair(2 * kSumBlockBytesMin, 2, std::make_shared<StreamKernels>(FAKE_GPU));
  uint8_t *source = DeviceMemory(kSize, 0), *target = DeviceMemory(kSize, 0x77);
  for (size_t i = 0; i < kSize; ++i) source[i] = static_cast<uint8_t>(i * 7 + i / 256);
  std::vector<uint64_t> expected;
  for (size_t at = 0; at < kSize; at += kSumBlockBytesMin)
    expected.push_back(
        BlockChecksum(ChecksumAlgorithm::kMultilinear, source + at, std::min<uint64_t>(kSumBlockBytesMin, kSize - at)));
  SumsOnly sent, received;
  std::thread sender([&, &link = *low] {
    const Memory memory{.data = source, .size_bytes = kSize, .kind = MemoryKind::kDevice, .device = 0};
    EXPECT_TRUE(link.Send(memory, 0, kSize, In(30s), &sent).ok());
  });
  ASSERT_TRUE(high->Receive(target, kSize, In(30s), &received).ok());
  sender.join();
  EXPECT_EQ(std::memcmp(source, target, kSize), 0);
  EXPECT_EQ(sent.all, expected);
  EXPECT_EQ(received.all, expected);
  low.reset(), high.reset();
  Free(source), Free(target);
}

// The state stream asks for these by itself, and its receiver compares them.
TEST_F(Nccl, TheStateStreamMovesDeviceMemoryWithChecksumsOfTheDevice) {
  constexpr size_t kSize = (5 << 20) + 12345;
  auto [low, high] = Pair(2 << 20, 2, std::make_shared<StreamKernels>(FAKE_GPU));
  uint8_t *source = DeviceMemory(kSize, 0), *target = DeviceMemory(kSize, 0x77);
  for (size_t i = 0; i < kSize; ++i) source[i] = static_cast<uint8_t>(i * 13 + i / 999);
  const auto items = [](uint8_t* at) {
    const Memory memory{.data = at, .size_bytes = kSize, .kind = MemoryKind::kDevice, .device = 0};
    return std::vector<StreamItem>{{"weight", memory}};
  };
  SendOptions options;
  options.checksum = ChecksumAlgorithm::kMultilinear;
  options.limits.deadline = In(60s);
  Status sent;
  std::thread sender([&, &link = *low] { sent = SendState(link, items(source), Step(3), options); });
  ReceiveOptions wanted;
  wanted.limits.deadline = In(60s);
  ReceiveLedger ledger;
  StreamResult result;
  const Status received = ReceiveState({high.get()}, items(target), Step(3), ledger, wanted, &result);
  sender.join();
  EXPECT_TRUE(sent.ok()) << sent.ToString();
  EXPECT_TRUE(received.ok()) << received.ToString();
  EXPECT_EQ(result.blocks_damaged, 0u);
  EXPECT_EQ(std::memcmp(source, target, kSize), 0);
  low.reset(), high.reset();
  Free(source), Free(target);
}

// Over NVLink nobody is told of a death: the kernel spins.
TEST_F(Nccl, AnAbortEndsAReceiveFromAPeerThatDiedSilently) {
  const Setting silent("FAKE_NCCL_SILENT", "1");
  auto [low, high] = Pair();
  high.reset();
  std::vector<uint8_t> bytes(5000);
  std::atomic<bool> ended{false};
  std::thread receiver([&, &link = *low] {
    EXPECT_EQ(link.Receive(bytes.data(), bytes.size(), In(1000s)).code(), StatusCode::kCancelled);
    ended = true;
  });
  std::this_thread::sleep_for(30ms);
  EXPECT_FALSE(ended);
  low->Abort();
  receiver.join();
}

TEST_F(Nccl, AnAbortOfADeviceThatIsSlowHoldsNobody) {
  const Setting slow("FAKE_NCCL_ABORT_MS", "400");
  MemoryStore store;
  const NcclUniqueId id = [&] {
    NcclUniqueId made;
    EXPECT_EQ(api_->get_unique_id(&made), 0);
    return made;
  }();
  auto communicators =
      NcclCommunicators::Init(api_, device_, {{.ranks = 1, .rank = 0, .ids = {id}}}, {.deadline = In(30s)});
  ASSERT_TRUE(communicators.ok()) << communicators.status().ToString();
  (*communicators)->Abort();
  EXPECT_FALSE((*communicators)->WaitAborted(0ms)) << "the abort was waited for";
  EXPECT_EQ((*communicators)
                ->Call(
                    0, "a call", [](NcclComm) { return 0; }, In(30s))
                .code(),
            StatusCode::kCancelled);
  EXPECT_TRUE((*communicators)->WaitAborted(30s));
}

TEST_F(Nccl, InitEndsAtItsDeadlineAndAtACancelWhenARankIsMissing) {
  NcclUniqueId id;
  ASSERT_EQ(api_->get_unique_id(&id), 0);
  const std::vector<NcclMembership> alone = {{.ranks = 2, .rank = 1, .ids = {id}}};
  const Status late = NcclCommunicators::Init(api_, device_, alone, {.deadline = In(50ms)}).status();
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded) << late.ToString();
  EXPECT_NE(late.message().find("limit"), std::string::npos) << late.ToString();
  CancelToken cancel;
  std::thread canceller([&] {
    std::this_thread::sleep_for(20ms);
    cancel.Cancel();
  });
  EXPECT_EQ(NcclCommunicators::Init(api_, device_, alone, {.deadline = In(1000s), .cancel = &cancel}).status().code(),
            StatusCode::kCancelled);
  canceller.join();
  const std::vector<NcclMembership> wrong = {{.ranks = 2, .rank = 2, .ids = {id}}};
  EXPECT_EQ(NcclCommunicators::Init(api_, device_, wrong, {.deadline = In(30s)}).status().code(),
            StatusCode::kInternal);
}

TEST_F(Nccl, RevokeIsThereFromItsVersionOn) {
  for (const char* path : {FAKE_GPU, FAKE_NCCL_2_19}) {
    const auto api = LoadNccl(path).value();
    NcclUniqueId id;
    ASSERT_EQ(api->get_unique_id(&id), 0);
    auto one = NcclCommunicators::Init(api, device_, {{.ranks = 1, .rank = 0, .ids = {id}}}, {.deadline = In(30s)});
    ASSERT_TRUE(one.ok());
    EXPECT_EQ((*one)->Revoke().code(), api->revoke ? StatusCode::kOk : StatusCode::kUnavailable);
  }
}

// Two by two ranks, each in a tensor, a data and the world group, in two generations one after the other.
TEST_F(Nccl, GroupsOfALayoutAreMadeTogetherForEachGeneration) {
  const std::vector<NcclGroup> layout = {{"tp0", {Rank(0), Rank(1)}},
                                         {"tp1", {Rank(2), Rank(3)}},
                                         {"dp0", {Rank(0), Rank(2)}},
                                         {"dp1", {Rank(3), Rank(1)}},
                                         {"world", {Rank(0), Rank(1), Rank(2), Rank(3)}}};
  for (const char* path : {FAKE_GPU, FAKE_NCCL_2_19}) {
    const auto api = LoadNccl(path).value();
    MemoryStore store;
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 4; ++rank)
      ranks.emplace_back([&, rank] {
        std::unique_ptr<NcclGroups> groups;
        for (int generation : {1, 2}) {
          groups.reset();
          auto made = NcclGroups::Connect(
              store, api, device_, layout,
              {.generation = Generation(generation), .self = Rank(rank), .deadline = In(30s), .ranks_per_id = 2});
          ASSERT_TRUE(made.ok()) << made.status().ToString();
          groups = std::move(made).value();
          EXPECT_EQ(groups->communicators().size(), 3u);
          EXPECT_TRUE(groups->Find("world").ok());
          EXPECT_EQ(groups->Find(rank < 2 ? "tp1" : "tp0").status().code(), StatusCode::kNotFound);
          EXPECT_EQ(*groups->Find(rank < 2 ? "tp0" : "tp1"), 0u);
        }
      });
    for (auto& rank : ranks) rank.join();
  }
}

TEST_F(Nccl, GroupsNameWhatIsWrongOrMissing) {
  MemoryStore store;
  const auto connect = [&](const std::vector<NcclGroup>& groups) {
    return NcclGroups::Connect(store, api_, device_, groups,
                               {.generation = Generation(1), .self = Rank(0), .deadline = In(50ms)})
        .status();
  };
  EXPECT_EQ(connect({{"a", {Rank(0), Rank(0)}}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(connect({{"a", {Rank(0)}}, {"a", {Rank(0)}}}).code(), StatusCode::kInvalidArgument);
  const Status absent = connect({{"late", {Rank(5), Rank(0)}}});
  EXPECT_EQ(absent.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(absent.message().find("late"), std::string::npos) << absent.ToString();
}

class NcclFallback : public Nccl {
 protected:
  // Both ends as make_link opens them, each with its preference.
  std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> Open(LinkPreference low_prefers,
                                                               LinkPreference high_prefers) {
    MemoryStore store;
    const auto open = [&](int self, int peer, LinkPreference prefer) {
      auto link = MakeLink(store, {.generation = Generation(1),
                                   .self = Rank(self),
                                   .peer = Rank(peer),
                                   .name = "fallback",
                                   .deadline = In(30s),
                                   .prefer = prefer,
                                   .device = 0,
                                   .log = log_});
      EXPECT_TRUE(link.ok()) << link.status().ToString();
      return link.ok() ? std::move(link).value() : nullptr;
    };
    std::unique_ptr<Link> low;
    std::thread other([&] { low = open(1, 2, low_prefers); });
    auto high = open(2, 1, high_prefers);
    other.join();
    return {std::move(low), std::move(high)};
  }

  // Device memory of one end arrives in device memory of the other, whatever is between them.
  void MoveDeviceMemory(Link& low, Link& high) {
    uint8_t *source = DeviceMemory(100000, 0x31), *target = DeviceMemory(100000, 0);
    std::thread sender([&] {
      EXPECT_TRUE(
          low.Send({.data = source, .size_bytes = 100000, .kind = MemoryKind::kDevice, .device = 0}, 1, 99999, In(30s))
              .ok());
    });
    EXPECT_TRUE(high.Receive(target, 99999, In(30s)).ok());
    sender.join();
    EXPECT_EQ(std::memcmp(source + 1, target, 99999), 0);
    EXPECT_EQ(target[99999], 0);
    Free(source), Free(target);
  }

  const Setting cuda_{"KINTSUGI_CUDA_LIBRARY", FAKE_GPU};
  std::shared_ptr<MemoryLogSink> log_ = std::make_shared<MemoryLogSink>();
};

TEST_F(NcclFallback, TakesNcclWhereBothSidesCanAndWant) {
  const Setting nccl("KINTSUGI_NCCL_LIBRARY", FAKE_GPU);
  auto [low, high] = Open(LinkPreference::kNccl, LinkPreference::kNccl);
  EXPECT_EQ(low->kind(), "nccl");
  EXPECT_EQ(high->kind(), "nccl");
  EXPECT_TRUE(log_->lines().empty());
  MoveDeviceMemory(*low, *high);
}

TEST_F(NcclFallback, AnOldLibraryGivesTcpByWayOfTheHostAndAReason) {
  const Setting nccl("KINTSUGI_NCCL_LIBRARY", FAKE_NCCL_2_17);
  auto [low, high] = Open(LinkPreference::kNccl, LinkPreference::kNccl);
  EXPECT_EQ(low->kind(), "tcp");
  EXPECT_EQ(high->kind(), "tcp");
  ASSERT_EQ(log_->lines().size(), 2u);
  EXPECT_NE(log_->lines()[0].find("2.18.0"), std::string::npos) << log_->lines()[0];
  MoveDeviceMemory(*low, *high);
}

TEST_F(NcclFallback, AnEndThatDoesNotWantItGivesTcp) {
  const Setting nccl("KINTSUGI_NCCL_LIBRARY", FAKE_GPU);
  auto [low, high] = Open(LinkPreference::kNccl, LinkPreference::kTcp);
  EXPECT_EQ(low->kind(), "tcp");
  EXPECT_EQ(high->kind(), "tcp");
  ASSERT_EQ(log_->lines().size(), 1u);
}

TEST_F(NcclFallback, WithoutADriverThereIsTcp) {
  const Setting cuda("KINTSUGI_CUDA_LIBRARY", "/nowhere/libcuda.so.1");
  auto [low, high] = Open(LinkPreference::kNccl, LinkPreference::kNccl);
  EXPECT_EQ(low->kind(), "tcp");
  EXPECT_EQ(high->kind(), "tcp");
}

}  // namespace
}  // namespace kintsugi
