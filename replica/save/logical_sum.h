// LogicalSum: what a shard adds to the sum of its global tensor, by the places that its bytes have there.
//
// What: the sums of shards that together are the tensor, each element once, add up (mod 2^64) to the same number
// however it is cut (tensor-parallel boxes, flat ranges, row by row): a digest of the logical tensor for which nobody
// needs all of it. The whole is the tensor's global row-major bytes (kernels/placed_sum.h). Type and shape are not in
// it: compare them beside it.
// Threads: one.
// Units: bytes.
#pragma once

#include <cstdint>
#include <span>

#include "callbacks/state/descriptors.h"
#include "callbacks/state/device_memory.h"
#include "runtime/base/result.h"

namespace kintsugi::checkpoint {

class KINTSUGI_EXPORT LogicalSum {
 public:
  // A valid shard (ValidateShard); its memory is not looked at.
  explicit LogicalSum(const ShardedTensor& shard);
  // The next bytes of the shard. REQUIRES: not more than it has.
  void Update(std::span<const uint8_t> bytes);
  // The sum over the bytes that have come.
  uint64_t value() const { return sum_; }
  // What bytes from byte `at` of the shard on add, whatever has come before. REQUIRES: not more than it has.
  uint64_t SumAt(uint64_t at, std::span<const uint8_t> bytes) const;

 private:
  // The same from byte `at` of the box on.
  uint64_t SumInBox(uint64_t at, std::span<const uint8_t> bytes) const;
  // Where the run that holds byte `at` of the box begins in the global tensor.
  uint64_t PlaceOfRun(uint64_t at) const;

  Shape global_, local_, offset_;
  uint64_t element_bytes_ = 0;
  size_t cut_ = 0;          // axes behind it are whole: a run goes over all of them and the shard's length of it
  uint64_t run_bytes_ = 0;  // contiguous in the shard and in the global tensor
  // Places in the box: of the shard's first byte, of the next to come, and behind the shard's last one.
  uint64_t begin_ = 0, at_ = 0, end_ = 0;
  uint64_t sum_ = 0;
};

// The sum of a whole shard. `device`: where its memory is on one (StateRegistry::DeviceOf), else null; `buffer` is host
// memory for it, made where it is empty.
// Errors: the device's.
KINTSUGI_EXPORT Result<uint64_t> LogicalSumOf(const ShardedTensor& shard, const DeviceMemory* device,
                                              std::shared_ptr<uint8_t>* buffer);

}  // namespace kintsugi::checkpoint
