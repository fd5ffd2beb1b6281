// The host's side, over a fake libcuda; nothing here says what a device does.
#include "runtime/device/cuda_fresh_memory.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace kintsugi::device {
namespace {

constexpr uint64_t kGranule = 2 << 20;

class CudaFreshMemoryTest : public testing::Test {
 protected:
  CudaFreshMemoryTest() : fresh_(CudaFreshMemory(0, FAKE_GPU)) {
    void* library = dlopen(FAKE_GPU, RTLD_NOW);
    const auto create =
        reinterpret_cast<int (*)(uint64_t*, size_t, const void*, unsigned long long)>(dlsym(library, "cuMemCreate"));
    const auto map =
        reinterpret_cast<int (*)(uint64_t, size_t, size_t, uint64_t, unsigned long long)>(dlsym(library, "cuMemMap"));
    const auto access =
        reinterpret_cast<int (*)(uint64_t, size_t, const void*, size_t)>(dlsym(library, "cuMemSetAccess"));
    bytes_ =
        static_cast<uint8_t*>(mmap(nullptr, 4 * kGranule, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (int i = 0; i < 3; ++i) {  // the fourth is memory that nobody mapped
      uint64_t handle = 0;
      EXPECT_EQ(create(&handle, kGranule, nullptr, 0), 0);
      EXPECT_EQ(map(At(i), kGranule, 0, handle, 0), 0);
      EXPECT_EQ(access(At(i), kGranule, nullptr, 0), 0);
    }
    std::memset(bytes_, 0x5A, 4 * kGranule);
  }
  uint64_t At(int granule) const {
    return reinterpret_cast<uint64_t>(bytes_) + static_cast<uint64_t>(granule) * kGranule;
  }
  Memory From(uint64_t offset, uint64_t size) const {
    return {.data = bytes_ + offset, .size_bytes = size, .kind = MemoryKind::kDevice, .device = 0};
  }
  uint64_t Fresh(int granule) const {
    const uint8_t* from = bytes_ + static_cast<uint64_t>(granule) * kGranule;
    return static_cast<uint64_t>(std::count(from, from + kGranule, 0));
  }

  const Result<std::unique_ptr<FreshMemory>> fresh_;
  uint8_t* bytes_ = nullptr;
};

TEST_F(CudaFreshMemoryTest, MapsTheDamagedAllocationsAnewAtTheirAddress) {
  ASSERT_TRUE(fresh_.ok()) << fresh_.status().ToString();
  const Status status = (*fresh_)->Replace(From(0, 3 * kGranule), {At(1) + 100, 8});
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(Fresh(0), 0u);
  EXPECT_EQ(Fresh(1), kGranule);
  EXPECT_EQ(Fresh(2), 0u);
  bytes_[kGranule] = 7;  // as the stream writes it
  ASSERT_TRUE((*fresh_)->Replace(From(0, 3 * kGranule), {At(1) + kGranule - 4, 8}).ok());
  EXPECT_EQ(Fresh(1), kGranule);
  EXPECT_EQ(Fresh(2), kGranule);
  EXPECT_EQ(Fresh(0), 0u);
}

TEST_F(CudaFreshMemoryTest, LeavesAloneWhatItCannotReplace) {
  const auto code = [&](const Memory& memory, const AddressRange& range) {
    return (*fresh_)->Replace(memory, range).code();
  };
  EXPECT_EQ(code(From(100, 2 * kGranule), {At(0) + 200, 8}), StatusCode::kFailedPrecondition)
      << "other bytes in the allocation";
  EXPECT_EQ(code(From(3 * kGranule, kGranule), {At(3), 8}), StatusCode::kFailedPrecondition)
      << "not mapped by cuMemMap";
  Memory host = From(0, kGranule);
  host.kind = MemoryKind::kHeap;
  EXPECT_EQ(code(host, {At(0), 8}), StatusCode::kFailedPrecondition);
  for (int granule = 0; granule < 4; ++granule) EXPECT_EQ(Fresh(granule), 0u);
  EXPECT_EQ(CudaFreshMemory(0, "/nowhere/libcuda.so.1").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace kintsugi::device
