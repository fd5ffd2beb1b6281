// Checksums of saved bytes: XXH3-64 (Collet, xxHash) per block of 1 MiB, and a digest over the ordered block checksums,
// so that writing, reading and naming the damaged place need one pass each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/export.h"

namespace kintsugi::checkpoint {

inline constexpr uint64_t kBlockBytes = 1 << 20;
// Checksums of these parts of a block are there for readers that need a part of it: they read and compare that part alone.
inline constexpr uint64_t kSubBlockBytes = 128 << 10;
static_assert(kBlockBytes % kSubBlockBytes == 0);
inline constexpr std::string_view kChecksumName = "xxh3-64";

using Checksum = uint64_t;

// Number of blocks that `size_bytes` fill; the last may be short.
constexpr uint64_t BlockCount(uint64_t size_bytes) {
  return size_bytes / kBlockBytes + (size_bytes % kBlockBytes != 0);
}
// The same of sub-blocks; none where one would be all there is: its checksum is the block's.
constexpr uint64_t SubBlockCount(uint64_t size_bytes) {
  return size_bytes <= kSubBlockBytes ? 0 : size_bytes / kSubBlockBytes + (size_bytes % kSubBlockBytes != 0);
}

KINTSUGI_EXPORT Checksum ChecksumOf(std::span<const uint8_t> bytes);
// Appends the checksum of every block of `bytes`, of which the first begins a block.
KINTSUGI_EXPORT void AppendBlocks(std::span<const uint8_t> bytes, std::vector<Checksum>* blocks);
// The same of sub-blocks.
KINTSUGI_EXPORT void AppendSubBlocks(std::span<const uint8_t> bytes, std::vector<Checksum>* sub_blocks);
// Over the block checksums in order, each as 8 little-endian bytes.
KINTSUGI_EXPORT Checksum DigestOf(const std::vector<Checksum>& blocks);

// 16 lower-case hex digits per checksum, without separators.
KINTSUGI_EXPORT std::string ToHex(Checksum checksum);
KINTSUGI_EXPORT std::string ToHex(const std::vector<Checksum>& checksums);
// Nothing unless `text` is exactly what ToHex gives.
KINTSUGI_EXPORT std::optional<std::vector<Checksum>> ChecksumsFromHex(std::string_view text);

}  // namespace kintsugi::checkpoint
