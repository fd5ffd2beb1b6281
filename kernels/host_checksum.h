// Checksums of host memory: one value per block of at most 1 MiB of state, and a hash over small lists of values.
//
// kCrc32c is the standard CRC-32C ("123456789" gives 0xE3069283), computed by ISA-L; kXxh3 is XXH3-64 (Collet);
// kMultilinear is the order-free sum multilinear-64, which a device computes at the speed of its memory. All run at
// memory speed here. None is a MAC: they find damage, not an adversary.
// Threads: free functions are pure; a RunningChecksum belongs to one thread.
// Units: bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "runtime/base/export.h"

namespace kintsugi {

// The numbers are part of the wire format.
enum class ChecksumAlgorithm : uint8_t { kNone = 0, kCrc32c = 1, kXxh3 = 2, kMultilinear = 3 };

KINTSUGI_EXPORT std::string_view ChecksumName(ChecksumAlgorithm algorithm);
KINTSUGI_EXPORT std::optional<ChecksumAlgorithm> ChecksumFromNumber(uint32_t number);

// Checksum of `size_bytes` at `data`; 0 for kNone.
KINTSUGI_EXPORT uint64_t BlockChecksum(ChecksumAlgorithm algorithm, const void* data, uint64_t size_bytes);

// XXH3-64 of a short list: what digests are made of, whatever algorithm the blocks use.
KINTSUGI_EXPORT uint64_t HashBytes(const void* data, uint64_t size_bytes);

// The checksum of bytes that come in pieces.
class KINTSUGI_EXPORT RunningChecksum {
 public:
  explicit RunningChecksum(ChecksumAlgorithm algorithm);
  ~RunningChecksum();
  RunningChecksum(RunningChecksum&&) noexcept;
  RunningChecksum& operator=(RunningChecksum&&) noexcept;

  void Reset();
  void Update(const void* data, uint64_t size_bytes);
  // Value over everything since the last Reset; equal to BlockChecksum of the concatenated pieces.
  uint64_t Value() const;
  ChecksumAlgorithm algorithm() const { return algorithm_; }

 private:
  struct Xxh3State;
  ChecksumAlgorithm algorithm_;
  uint32_t crc_ = 0;
  uint64_t sum_ = 0;         // kMultilinear
  uint64_t size_bytes_ = 0;  // kMultilinear
  std::unique_ptr<Xxh3State> xxh3_;
};

}  // namespace kintsugi
