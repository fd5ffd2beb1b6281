#include "replica/save/logical_sum.h"

#include <algorithm>

#include "kernels/placed_sum.h"
#include "replica/save/checksum.h"
#include "runtime/base/check.h"

namespace kintsugi::checkpoint {

LogicalSum::LogicalSum(const ShardedTensor& shard)
    : global_(shard.global_shape),
      local_(shard.local_shape),
      offset_(shard.global_offset),
      element_bytes_(DTypeSize(shard.dtype)),
      cut_(local_.empty() ? 0 : local_.size() - 1) {
  KINTSUGI_CHECK(global_.size() == local_.size() && offset_.size() == local_.size(),
                 "offset and shapes of a shard have equally many axes");
  while (cut_ > 0 && local_[cut_] == global_[cut_]) --cut_;
  run_bytes_ = element_bytes_;
  for (size_t axis = cut_; axis < local_.size(); ++axis) run_bytes_ *= static_cast<uint64_t>(local_[axis]);
  const FlatRange range = shard.flattened_range.value_or(FlatRange{0, shard.ElementCount()});
  KINTSUGI_CHECK(0 <= range.start && range.start <= range.stop, "a flat range starts at or before its stop");
  begin_ = at_ = static_cast<uint64_t>(range.start) * element_bytes_;
  end_ = static_cast<uint64_t>(range.stop) * element_bytes_;
}

uint64_t LogicalSum::PlaceOfRun(uint64_t at) const {
  uint64_t number = at / run_bytes_, place = 0, stride = element_bytes_;
  for (size_t axis = global_.size(); axis-- > 0;) {
    uint64_t index = static_cast<uint64_t>(offset_[axis]);
    if (axis < cut_) {
      index += number % static_cast<uint64_t>(local_[axis]);
      number /= static_cast<uint64_t>(local_[axis]);
    }
    place += index * stride;
    stride *= static_cast<uint64_t>(global_[axis]);
  }
  return place;
}

uint64_t LogicalSum::SumInBox(uint64_t at, std::span<const uint8_t> bytes) const {
  KINTSUGI_CHECK(at <= end_ && bytes.size() <= end_ - at, "more bytes than the shard has");
  KINTSUGI_CHECK(bytes.empty() || run_bytes_ > 0, "a box that has bytes has runs");
  uint64_t sum = 0;
  while (!bytes.empty()) {
    const uint64_t within = at % run_bytes_, size = std::min<uint64_t>(run_bytes_ - within, bytes.size());
    sum += PlacedSum(bytes.data(), size, PlaceOfRun(at) + within);
    bytes = bytes.subspan(size);
    at += size;
  }
  return sum;
}

uint64_t LogicalSum::SumAt(uint64_t at, std::span<const uint8_t> bytes) const { return SumInBox(begin_ + at, bytes); }

void LogicalSum::Update(std::span<const uint8_t> bytes) {
  sum_ += SumInBox(at_, bytes);
  at_ += bytes.size();
}

Result<uint64_t> LogicalSumOf(const ShardedTensor& shard, const DeviceMemory* device,
                              std::shared_ptr<uint8_t>* buffer) {
  LogicalSum sum(shard);
  const auto* const data = static_cast<const uint8_t*>(shard.memory.data);
  const uint64_t size_bytes = shard.memory.size_bytes;
  if (!device) {
    sum.Update({data, size_bytes});
    return sum.value();
  }
  constexpr uint64_t kBufferBytes = 4 * kBlockBytes;
  if (!*buffer) {
    KINTSUGI_ASSIGN_OR_RETURN(*buffer, device->AllocateHost(kBufferBytes));
  }
  for (uint64_t at = 0; at < size_bytes; at += kBufferBytes) {
    const uint64_t size = std::min(kBufferBytes, size_bytes - at);
    KINTSUGI_RETURN_IF_ERROR(device->Read(buffer->get(), data + at, size));
    sum.Update({buffer->get(), size});
  }
  return sum.value();
}

}  // namespace kintsugi::checkpoint
