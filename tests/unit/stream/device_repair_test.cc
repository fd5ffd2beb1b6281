// The default repair of tensors in device memory, by each way that bytes can take, over fakes of libnccl and libcuda.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "replica/defaults.h"
#include "replica/device/cuda_memory.h"
#include "replica/stream/cuda_driver.h"
#include "tests/support/fake_gpu/stream_kernels.h"
#include "tests/support/memory_store.h"

namespace kintsugi {
namespace {

auto DigestsOf(ReplicaDefaults& service) {
  CancelToken never;
  return service.Digests(never);
}

using namespace std::chrono_literals;

constexpr uint64_t kSize = (3 << 20) + 40;

// A rank with one tensor on the device.
struct DeviceRank {
  DeviceRank(Rank self, int fill, LinkPreference prefer, std::shared_ptr<const ByteKernels> kernels)
      : rank(self), memory(CudaMemory::Open(0, std::move(kernels), FAKE_GPU).value()) {
    EXPECT_EQ(memory->cuda()->driver().memory_allocate(&at, kSize), 0);
    for (uint64_t i = 0; i < kSize; ++i) data()[i] = static_cast<uint8_t>(fill + i * 7 + i / 256);
    constexpr auto kCount = static_cast<int64_t>(kSize / sizeof(float));
    EXPECT_TRUE(registry.SetDeviceMemory(memory).ok());
    EXPECT_TRUE(
        registry
            .AddTensor({.key = "w",
                        .global_shape = {kCount},
                        .local_shape = {kCount},
                        .global_offset = {0},
                        .memory = {.data = data(), .size_bytes = kSize, .kind = MemoryKind::kDevice, .device = 0}})
            .ok());
    service = std::make_unique<ReplicaDefaults>(registry, ReplicaOptions{.prefer = prefer});
  }
  ~DeviceRank() { memory->cuda()->driver().memory_free(at); }
  uint8_t* data() const { return reinterpret_cast<uint8_t*>(at); }

  Rank rank;
  std::shared_ptr<CudaMemory> memory;
  uint64_t at = 0;
  StateRegistry registry;
  std::unique_ptr<ReplicaDefaults> service;
};

class DeviceRepair : public testing::TestWithParam<LinkPreference> {
 protected:
  DeviceRepair() { setenv("KINTSUGI_NCCL_LIBRARY", FAKE_GPU, 1); }
};

TEST_P(DeviceRepair, BringsTheSourcesBytesAndEqualDigests) {
  const auto kernels = std::make_shared<StreamKernels>(FAKE_GPU);
  DeviceRank source(Rank(0), 3, GetParam(), kernels), destination(Rank(1), 99, GetParam(), kernels);
  MemoryStore store;
  CancelToken cancel;
  const auto repair = [&](DeviceRank& rank) {
    HandlerContext call;
    call.rank = rank.rank;
    call.generation = Generation(1);
    call.step = Step(5);
    call.deadline = SteadyClock::SteadyNow() + 60s;
    call.cancel = &cancel;
    call.store = &store;
    call.rung = Rung::kRebuild;
    call.partners = {Rank(1 - rank.rank.value())};
    call.moves = {{.layout = 0, .destination = Rank(1), .sources = {Rank(0)}}};
    Status status = rank.service->Open(call);
    if (status.ok()) status = ReplicaDefaults::RepairHandler(call, rank.service.get());
    EXPECT_TRUE(status.ok()) << status.ToString();
  };
  std::thread other([&] { repair(source); });
  repair(destination);
  other.join();
  EXPECT_EQ(std::memcmp(source.data(), destination.data(), kSize), 0);
  // Over NCCL the bytes never pass the host: their checksums are the device's, at both ends.
  EXPECT_EQ(kernels->checksums > 0, GetParam() == LinkPreference::kNccl);
  const auto digests = DigestsOf(*source.service);
  ASSERT_TRUE(digests.ok()) << digests.status().ToString();
  EXPECT_EQ(*digests, *DigestsOf(*destination.service));
  EXPECT_GT(kernels->checksums, 0);
  destination.data()[kSize / 2] ^= 0x10;
  EXPECT_NE(*digests, *DigestsOf(*destination.service));
}

INSTANTIATE_TEST_SUITE_P(Ways, DeviceRepair,
                         testing::Values(LinkPreference::kNccl, LinkPreference::kTcp, LinkPreference::kSharedMemory),
                         [](const auto& test) {
                           return std::string(test.param == LinkPreference::kNccl   ? "Nccl"
                                              : test.param == LinkPreference::kTcp ? "Tcp"
                                                                                    : "SharedMemory");
                         });

TEST(DeviceRepairWithoutDevice, NamesTheTensorAndWhatIsMissing) {
  StateRegistry registry;
  ASSERT_TRUE(
      registry
          .AddTensor({.key = "w",
                      .global_shape = {4},
                      .local_shape = {4},
                      .global_offset = {0},
                      .memory = {.data = &registry, .size_bytes = 16, .kind = MemoryKind::kDevice, .device = 2}})
          .ok());
  ReplicaDefaults service(registry);
  const Status status = DigestsOf(service).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  for (const char* word : {"'w'", "device 2", "SetDeviceMemory"})
    EXPECT_NE(status.message().find(word), std::string::npos) << status.ToString();
}

}  // namespace
}  // namespace kintsugi
