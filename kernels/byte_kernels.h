// ByteKernels: what is done to the bytes of state, one interface over host memory and CUDA devices.
//
// What: copies, casts, packs, unpacks, checksums and compares. HostKernels() is the reference: an implementation for a
// device gives the same bits. Addresses, also those of results, are memory that the implementation reaches: host memory
// for the host; device memory, or pinned host memory that is mapped, for a device. The spans of parts are host memory
// and are read before a call returns. Stream: a device's calls enqueue their work on `stream` and return: none
// synchronizes, none allocates. Results may be read when the stream has come that far. Calls on several streams may run
// at once. The host ignores it and is done when a call returns. Block sums: one kMultilinear checksum (multilinear.h)
// per block of `block_bytes` of packed bytes, the last one shorter; equal to BlockChecksum(kMultilinear, ...) of the
// same bytes.
// Threads: any thread, several at once.
// Errors: kInvalidArgument names the part and the limit; then nothing was enqueued. kInternal is an error of the
// device's launch, with its name; an error of the running kernel shows on the stream.
// Units: bytes; lengths of regions in elements. Regions are those of host_region.h, with its requirements.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/element_type.h"
#include "kernels/host_region.h"
#include "runtime/base/export.h"
#include "runtime/base/status.h"

namespace kintsugi {

// A stream of the implementation's device (cudaStream_t); the host has none.
struct KernelStream {
  void* handle = nullptr;
};

// Parts of one call share no destination byte, and no destination byte is a source of another part.
struct CopyPart {
  void* to = nullptr;
  const void* from = nullptr;
  RegionPair region;
  uint64_t element_bytes = 1;
};

// REQUIRES: IsCastable by the implementation (every one casts between float32, float16, bfloat16 and the two 8-bit
// floats; the host between all types of host_cast.h). Element addresses are multiples of their element's size.
struct CastPart {
  void* to = nullptr;
  ElementType to_type = ElementType::kFloat32;
  const void* from = nullptr;
  ElementType from_type = ElementType::kFloat32;
  RegionPair region;
};

// A region of memory and where its elements stand, dense and in row-major order, among the packed bytes.
struct PackPart {
  void* memory = nullptr;  // Pack only reads it
  Region region;
  uint64_t element_bytes = 1;
  uint64_t packed_offset = 0;
};

inline constexpr uint64_t kSumBlockBytesMin = 64 * 1024;
inline constexpr uint64_t kSumBlockBytes = 1 << 20;

// `sums` has one value for each begun block; it need not be zeroed. block_bytes: a power of two from kSumBlockBytesMin
// on.
struct BlockSums {
  uint64_t* sums = nullptr;
  uint64_t block_bytes = kSumBlockBytes;
};

// What a comparison gives where nothing differs.
inline constexpr uint64_t kNoDifference = ~uint64_t{0};

constexpr uint64_t SumBlocks(uint64_t size_bytes, uint64_t block_bytes) {
  return size_bytes / block_bytes + (size_bytes % block_bytes != 0);
}

class KINTSUGI_EXPORT ByteKernels {
 public:
  virtual ~ByteKernels() = default;

  virtual std::string_view kind() const = 0;  // "host", "cuda"
  virtual bool CanCast(ElementType from, ElementType to) const = 0;

  virtual Status Copy(std::span<const CopyPart> parts, KernelStream stream) const = 0;
  virtual Status Cast(std::span<const CastPart> parts, KernelStream stream) const = 0;

  virtual Status Checksum(const void* data, uint64_t size_bytes, const BlockSums& sums, KernelStream stream) const = 0;

  // *first_difference: the offset of the first byte that differs, or kNoDifference.
  virtual Status Compare(const void* a, const void* b, uint64_t size_bytes, uint64_t* first_difference,
                         KernelStream stream) const = 0;

  // With `sums` also the block sums of the packed bytes, in the same pass. REQUIRES: the parts cover [0, packed_bytes),
  // each byte once (without `sums` they may leave gaps, which are not written).
  virtual Status Pack(std::span<const PackPart> parts, void* packed, uint64_t packed_bytes, const BlockSums* sums,
                      KernelStream stream) const = 0;

  // With `sums` also the block sums of what was unpacked, in the same pass; *first_bad is then the number of the first
  // block whose sum is not `expected`, or kNoDifference. The regions are written either way.
  virtual Status Unpack(std::span<const PackPart> parts, const void* packed, uint64_t packed_bytes,
                        const BlockSums* sums, const uint64_t* expected, uint64_t* first_bad,
                        KernelStream stream) const = 0;
};

KINTSUGI_EXPORT const ByteKernels& HostKernels();

}  // namespace kintsugi
