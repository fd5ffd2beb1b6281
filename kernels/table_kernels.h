// TableKernels: byte_kernels.h for whatever runs tables of moves; a device is one such launcher, a test's loop another.
//
// What: turns calls into tables and ranges and hands these to a TableLauncher, in the order in which they must run.
// Threads: as byte_kernels.h, where the launcher keeps to it.
// Ownership: the launcher is owned.
// Errors: those of byte_kernels.h, and what the launcher returns. Internal to kernels and its tests.
#pragma once

#include <memory>
#include <string>

#include "kernels/byte_kernels.h"
#include "kernels/cast_work.h"
#include "kernels/tile_work.h"

namespace kintsugi::internal {

// Where the block sums of a launch go; null: none.
struct SumTarget {
  uint64_t* sums = nullptr;
  uint32_t block_shift = 0;
};

// Each call enqueues one launch on the stream.
class TableLauncher {
 public:
  virtual ~TableLauncher() = default;
  virtual std::string_view kind() const = 0;

  virtual Status Copy(const MoveTable<FlatMove>& table, const SumTarget& target, KernelStream stream) const = 0;
  virtual Status Copy(const MoveTable<DeepMove>& table, const SumTarget& target, KernelStream stream) const = 0;
  virtual Status Cast(ElementType to, ElementType from, const MoveTable<FlatMove>& table,
                      KernelStream stream) const = 0;
  virtual Status Cast(ElementType to, ElementType from, const MoveTable<DeepMove>& table,
                      KernelStream stream) const = 0;
  // sums[b] = StartOfSum(b, ...) where there are sums, *index = kNoDifference where there is one.
  virtual Status Start(const SumTarget& target, uint64_t size_bytes, uint64_t* index, KernelStream stream) const = 0;
  virtual Status Sum(const Range& range, const SumTarget& target, KernelStream stream) const = 0;
  // *index becomes the least of itself and the offset of the first difference.
  virtual Status Compare(const Range& range, uint64_t* index, KernelStream stream) const = 0;
  // *index becomes the least of itself and the number of the first value that differs.
  virtual Status CompareValues(const uint64_t* a, const uint64_t* b, uint64_t count, uint64_t* index,
                               KernelStream stream) const = 0;
};

class TableKernels final : public ByteKernels {
 public:
  explicit TableKernels(std::unique_ptr<TableLauncher> launcher) : launcher_(std::move(launcher)) {}

  std::string_view kind() const override { return launcher_->kind(); }
  bool CanCast(ElementType from, ElementType to) const override;
  Status Copy(std::span<const CopyPart> parts, KernelStream stream) const override;
  Status Cast(std::span<const CastPart> parts, KernelStream stream) const override;
  Status Checksum(const void* data, uint64_t size_bytes, const BlockSums& sums, KernelStream stream) const override;
  Status Compare(const void* a, const void* b, uint64_t size_bytes, uint64_t* first_difference,
                 KernelStream stream) const override;
  Status Pack(std::span<const PackPart> parts, void* packed, uint64_t packed_bytes, const BlockSums* sums,
              KernelStream stream) const override;
  Status Unpack(std::span<const PackPart> parts, const void* packed, uint64_t packed_bytes, const BlockSums* sums,
                const uint64_t* expected, uint64_t* first_bad, KernelStream stream) const override;

 private:
  Status Launch(const Moves& moves, const SumTarget& target, KernelStream stream) const;

  const std::unique_ptr<TableLauncher> launcher_;
};

}  // namespace kintsugi::internal
