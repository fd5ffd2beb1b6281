// The host's side of copies to and from device memory, over a fake libcuda. Nothing here says what a device does.
#include "replica/device/cuda_memory.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <numeric>
#include <thread>

#include "callbacks/state/kept_memory.h"
#include "replica/stream/cuda_driver.h"
#include "replica/stream/state_stream.h"
#include "tests/support/fake_gpu/stream_kernels.h"
#include "tests/support/memory_store.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

// More than two pieces, and no whole number of them.
constexpr uint64_t kSize = (11 << 20) + 77;

class CudaMemoryTest : public testing::Test {
 protected:
  uint8_t* Allocate(uint64_t size, uint8_t seed) {
    uint64_t at = 0;
    EXPECT_EQ(memory_->cuda()->driver().memory_allocate(&at, size), 0);
    auto* bytes = reinterpret_cast<uint8_t*>(at);
    for (uint64_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 256 + seed);
    allocated_.push_back(at);
    return bytes;
  }
  ~CudaMemoryTest() override {
    for (uint64_t at : allocated_) memory_->cuda()->driver().memory_free(at);
  }

  const std::shared_ptr<StreamKernels> kernels_ = std::make_shared<StreamKernels>(FAKE_GPU);
  const std::shared_ptr<CudaMemory> memory_ = CudaMemory::Open(0, nullptr, FAKE_GPU).value();
  std::vector<uint64_t> allocated_;
};

TEST_F(CudaMemoryTest, WhatADescriptorKeepsTakesThePlaceOfOther) {
  auto first = memory_->AllocateKept(kSize).value();
  const Memory lies = first->memory();
  EXPECT_EQ(lies.kind, MemoryKind::kDevice);
  EXPECT_TRUE(memory_->Holds(lies.data));
  std::vector<uint8_t> written(kSize), read(kSize);
  std::iota(written.begin(), written.end(), uint8_t{3});
  ASSERT_TRUE(memory_->Write(lies.data, written.data(), kSize).ok());
  const UniqueFd kept(dup(lies.shared_fd));
  first.reset();  // as where its process is gone

  auto second = memory_->AllocateKept(kSize).value();
  void* const at = second->memory().data;
  ASSERT_TRUE(memory_->Write(at, read.data(), kSize).ok());
  ASSERT_TRUE(second->Replace(kept).ok());
  EXPECT_EQ(second->memory().data, at);
  ASSERT_TRUE(memory_->Read(read.data(), at, kSize).ok());
  EXPECT_EQ(read, written);
  // Its own descriptor is of those bytes, too: whoever comes next gets them.
  auto third = memory_->AllocateKept(kSize).value();
  ASSERT_TRUE(third->Replace(UniqueFd(dup(second->memory().shared_fd))).ok());
  ASSERT_TRUE(memory_->Read(read.data(), third->memory().data, kSize).ok());
  EXPECT_EQ(read, written);
}

TEST_F(CudaMemoryTest, MemoryThatIsNotTheresIsNotReplaced) {
  auto kept = memory_->AllocateKept(kSize).value();
  EXPECT_FALSE(kept->Replace(UniqueFd()).ok());
}

TEST_F(CudaMemoryTest, CopiesAreWholeWhenTheyReturnAndTouchNothingElse) {
  uint8_t* const device = Allocate(kSize + 2, 1);
  std::vector<uint8_t> heap(kSize + 2, 0xEE);
  const auto pinned = memory_->AllocateHost(kSize + 2).value();
  for (uint8_t* host : {heap.data(), pinned.get()}) {
    std::memset(host, 0xEE, kSize + 2);
    ASSERT_TRUE(memory_->Read(host + 1, device + 1, kSize).ok());
    EXPECT_EQ(std::memcmp(host + 1, device + 1, kSize), 0);
    EXPECT_EQ(host[0], 0xEE);
    EXPECT_EQ(host[kSize + 1], 0xEE);
    std::reverse(host + 1, host + 1 + kSize);
    const std::vector<uint8_t> before(device, device + kSize + 2);
    ASSERT_TRUE(memory_->Write(device + 1, host + 1, kSize).ok());
    EXPECT_EQ(std::memcmp(host + 1, device + 1, kSize), 0);
    EXPECT_EQ(device[0], before[0]);
    EXPECT_EQ(device[kSize + 1], before[kSize + 1]);
  }
  EXPECT_TRUE(memory_->Read(heap.data(), device, 0).ok());
}

TEST_F(CudaMemoryTest, KnowsItsMemoryAndWhatIsPinned) {
  uint8_t* const device = Allocate(100, 0);
  std::vector<uint8_t> heap(100);
  EXPECT_TRUE(memory_->Holds(device) && memory_->Holds(device + 99));
  EXPECT_FALSE(memory_->Holds(heap.data()));
  const CudaDevice& cuda = *memory_->cuda();
  EXPECT_FALSE(cuda.IsPinned(heap.data(), 100));
  auto pinned = memory_->Pin(heap.data(), 100);
  ASSERT_NE(pinned, nullptr);
  EXPECT_TRUE(cuda.IsPinned(heap.data(), 100));
  EXPECT_FALSE(cuda.IsPinned(heap.data(), 101)) << "one byte more is not";
  EXPECT_EQ(memory_->Pin(heap.data(), 100), nullptr) << "twice";
  pinned.reset();
  EXPECT_FALSE(cuda.IsPinned(heap.data(), 100));
}

TEST_F(CudaMemoryTest, AnErrorOfTheDeviceNamesTheCall) {
  std::vector<uint8_t> heap(100);
  const Status status = memory_->Read(heap.data(), heap.data() + 50, 10);  // no device memory
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("cuMemcpyDtoHAsync"), std::string::npos) << status.ToString();
}

TEST_F(CudaMemoryTest, SumsAreThoseOfTheHost) {
  const uint8_t* const device = Allocate(kSize, 3);
  const CudaMemory summing(memory_->cuda(), kernels_);
  EXPECT_FALSE(memory_->CanSum());
  std::vector<uint64_t> sums(12, 0), expected;
  EXPECT_EQ(memory_->BlockSums(device, kSize, 1 << 20, sums.data()).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(summing.BlockSums(device, kSize, 1 << 20, sums.data()).ok());
  for (uint64_t at = 0; at < kSize; at += 1 << 20)
    expected.push_back(
        BlockChecksum(ChecksumAlgorithm::kMultilinear, device + at, std::min<uint64_t>(1 << 20, kSize - at)));
  EXPECT_EQ(sums, expected);
}

// Keeps every later operation of the stream waiting. The stream may come to it when it is ended and gone.
class Stall {
 public:
  explicit Stall(void* stream) {
    using Run = void (*)(void*, void (*)(void*), void*);
    const auto wait = [](void* end) {
      const std::unique_ptr<std::future<void>> owned(static_cast<std::future<void>*>(end));
      owned->wait();
    };
    reinterpret_cast<Run>(dlsym(dlopen(FAKE_GPU, RTLD_NOW), "fakeStreamRun"))(
        stream, wait, new std::future<void>(gate_.get_future()));
  }
  void End() { gate_.set_value(); }

 private:
  std::promise<void> gate_;
};

TEST_F(CudaMemoryTest, AFenceIsDoneWhenItsStreamHasComeThatFar) {
  void* stream = nullptr;
  ASSERT_EQ(memory_->cuda()->driver().stream_create(&stream, 1), 0);
  const auto fence = CudaFence::Make(memory_->cuda()).value();
  EXPECT_TRUE(*fence->IsDone()) << "nothing was recorded";
  Stall stall(stream);
  ASSERT_TRUE(fence->Record(stream).ok());
  std::this_thread::sleep_for(5ms);
  EXPECT_FALSE(*fence->IsDone());
  stall.End();
  while (!*fence->IsDone()) std::this_thread::sleep_for(1ms);
  memory_->cuda()->driver().stream_destroy(stream);
}

// Kernels that never come to an end: what is behind them on the stream waits.
class StalledKernels final : public ByteKernels {
 public:
  std::string_view kind() const override { return "stalled"; }
  bool CanCast(ElementType, ElementType) const override { return false; }
  Status Copy(std::span<const CopyPart>, KernelStream) const override { return Unused(); }
  Status Cast(std::span<const CastPart>, KernelStream) const override { return Unused(); }
  Status Compare(const void*, const void*, uint64_t, uint64_t*, KernelStream) const override { return Unused(); }
  Status Pack(std::span<const PackPart>, void*, uint64_t, const kintsugi::BlockSums*, KernelStream) const override {
    return Unused();
  }
  Status Unpack(std::span<const PackPart>, const void*, uint64_t, const kintsugi::BlockSums*, const uint64_t*,
                uint64_t*, KernelStream) const override {
    return Unused();
  }
  Status Checksum(const void*, uint64_t, const kintsugi::BlockSums&, KernelStream stream) const override {
    stalls.push_back(std::make_unique<Stall>(stream.handle));
    return Status::Ok();
  }
  mutable std::vector<std::unique_ptr<Stall>> stalls;

 private:
  static Status Unused() { return {StatusCode::kInternal, "no such kernel is needed"}; }
};

TEST_F(CudaMemoryTest, ADeviceThatDoesNotComeBackEndsNoMoreThanTheCall) {
  const uint8_t* const device = Allocate(kSize, 3);
  const auto stalled = std::make_shared<StalledKernels>();
  const CudaMemory summing(memory_->cuda(), stalled);
  std::vector<uint64_t> sums(12, 0);
  const Status late =
      summing.BlockSums(device, kSize, 1 << 20, sums.data(), {.deadline = SteadyClock::SteadyNow() + 30ms});
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(late.message().find("device 0"), std::string::npos) << late.ToString();
  std::atomic<bool> stop{false};
  auto digest = std::async(std::launch::async,
                           [&] { return summing.BlockSums(device, kSize, 1 << 20, sums.data(), {.stop = &stop}); });
  EXPECT_EQ(digest.wait_for(100ms), std::future_status::timeout);
  stop = true;
  EXPECT_EQ(digest.get().code(), StatusCode::kCancelled);
  std::vector<uint8_t> host(100);
  EXPECT_TRUE(summing.Read(host.data(), device, 100).ok()) << "a lane that works is made";
  for (auto& stall : stalled->stalls) stall->End();
}

TEST_F(CudaMemoryTest, ADigestIsTheSameWhereverTheStateLies) {
  uint8_t* const device = Allocate(kSize, 9);
  std::vector<uint8_t> host(device, device + kSize);
  const std::vector<StreamItem> on_host = {{"a", {.data = host.data(), .size_bytes = kSize}},
                                           {"b", {.data = host.data() + 1, .size_bytes = 5000}}};
  std::vector<StreamItem> on_device = on_host;
  on_device[0].memory = {.data = device, .size_bytes = kSize, .kind = MemoryKind::kDevice, .device = 0};
  on_device[1].memory = {.data = device + 1, .size_bytes = 5000, .kind = MemoryKind::kDevice, .device = 0};
  const CudaMemory summing(memory_->cuda(), kernels_);
  const std::atomic<bool> never{false};
  const std::atomic<bool> at_once{true};
  for (const CudaMemory* memory : std::initializer_list<const CudaMemory*>{memory_.get(), &summing}) {
    EXPECT_EQ(DigestState(on_device, never, memory).value(), DigestState(on_host));
    device[kSize - 1] ^= 1;
    EXPECT_NE(DigestState(on_device, never, memory).value(), DigestState(on_host));
    device[kSize - 1] ^= 1;
    EXPECT_EQ(DigestState(on_device, at_once, memory).status().code(), StatusCode::kCancelled);
  }
  const Status nobody = DigestState(on_device, never).status();
  EXPECT_EQ(nobody.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(nobody.message().find("'a'"), std::string::npos) << nobody.ToString();
}

}  // namespace
}  // namespace kintsugi
