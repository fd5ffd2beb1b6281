#include "runtime/device/damage_map.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "callbacks/state/shared_memory.h"

namespace kintsugi::device {
namespace {

const uint64_t kPage = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));

ShardedTensor TensorAt(uint64_t start, uint64_t size) {
  ShardedTensor tensor;
  tensor.memory = {.data = reinterpret_cast<void*>(start), .size_bytes = size};
  return tensor;
}

TEST(DamageMap, NamesTheTensorsAndTheirDamagedBytes) {
  const std::map<std::string, ShardedTensor> tensors = {
      {"a", TensorAt(1000, 100)}, {"b", TensorAt(1100, 100)}, {"c", TensorAt(5000, 10)}};
  const Damage damage = FindDamage(tensors, {{1150, 10}, {1090, 20}, {1155, 20}});
  ASSERT_EQ(damage.tensors.size(), 2u);
  EXPECT_EQ(damage.tensors[0].key, "a");
  EXPECT_EQ(damage.tensors[0].ranges, (std::vector<AddressRange>{{1090, 10}}));
  EXPECT_EQ(damage.tensors[1].key, "b");
  EXPECT_EQ(damage.tensors[1].ranges, (std::vector<AddressRange>{{1100, 10}, {1150, 25}}));
  EXPECT_TRUE(damage.IsPatchable());
}

TEST(DamageMap, BytesThatNoTensorHoldsMakeTheRankDamaged) {
  const std::map<std::string, ShardedTensor> tensors = {{"a", TensorAt(1000, 100)}, {"b", TensorAt(1200, 100)}};
  const Damage damage = FindDamage(tensors, {{990, 420}});
  EXPECT_EQ(damage.unregistered, (std::vector<AddressRange>{{990, 10}, {1100, 100}, {1300, 110}}));
  EXPECT_EQ(damage.tensors.size(), 2u);
  EXPECT_FALSE(damage.IsPatchable());
  EXPECT_FALSE(FindDamage(tensors, {}).IsPatchable());
}

class FreshMemoryTest : public testing::TestWithParam<MemoryKind> {
 protected:
  FreshMemoryTest()
      : shared_(SharedMemory::Allocate(8 * kPage)), heap_(static_cast<uint8_t*>(std::aligned_alloc(kPage, 8 * kPage))) {
    // Half a page behind a page's start, six pages long.
    const bool on_heap = GetParam() == MemoryKind::kHeap;
    whole_ = on_heap ? Memory{.data = heap_, .size_bytes = 8 * kPage} : shared_->memory();
    bytes_ = static_cast<uint8_t*>(whole_.data);
    std::memset(bytes_, 0x5A, 8 * kPage);
    ShardedTensor tensor;
    tensor.memory = on_heap ? Memory{.data = heap_ + kPage / 2, .size_bytes = 6 * kPage}
                            : SliceOf(shared_->memory(), kPage / 2, 6 * kPage);
    tensors_["t"] = tensor;
  }
  ~FreshMemoryTest() override {
    // Pages that were mapped anew belong to the heap as before.
    std::free(heap_);
  }

  uint64_t At(uint64_t offset) const { return reinterpret_cast<uint64_t>(bytes_) + offset; }
  uint64_t Touched() const {
    return static_cast<uint64_t>(std::count_if(bytes_, bytes_ + 8 * kPage, [](uint8_t b) { return b != 0x5A; }));
  }

  Result<SharedMemory> shared_;
  uint8_t* heap_;
  Memory whole_;
  uint8_t* bytes_ = nullptr;
  std::map<std::string, ShardedTensor> tensors_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, FreshMemoryTest, testing::Values(MemoryKind::kHeap, MemoryKind::kShared));

TEST_P(FreshMemoryTest, ReplacesTheDamagedPagesAndNoOthers) {
  const Damage damage = FindDamage(tensors_, {{At(2 * kPage + 10), kPage}});
  const auto fresh = HostFreshMemory();
  const Status status = ReplaceDamaged(tensors_, damage, *fresh);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(Touched(), 2 * kPage);
  EXPECT_EQ(bytes_[2 * kPage - 1], 0x5A);
  EXPECT_EQ(bytes_[2 * kPage], 0);
  EXPECT_EQ(bytes_[4 * kPage], 0x5A);
  std::memset(bytes_ + 2 * kPage, 0x11, 2 * kPage);  // as the stream writes it
  EXPECT_EQ(bytes_[3 * kPage], 0x11);
}

TEST_P(FreshMemoryTest, DoesNotTouchAPageThatHoldsOtherBytesToo) {
  const auto fresh = HostFreshMemory();
  for (uint64_t offset : {kPage / 2, 6 * kPage + 1}) {
    const Status status = ReplaceDamaged(tensors_, FindDamage(tensors_, {{At(offset), 8}}), *fresh);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("'t'"), std::string::npos) << status.ToString();
  }
  EXPECT_EQ(Touched(), 0u);
}

}  // namespace
}  // namespace kintsugi::device
