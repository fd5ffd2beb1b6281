#include <algorithm>

#include "kernels/host_checksum.h"
#include "replica/stream/state_stream.h"

namespace kintsugi {

uint64_t DigestState(const std::vector<StreamItem>& items) {
  const std::atomic<bool> never{false};
  return *DigestState(items, never);
}

std::optional<uint64_t> DigestState(const std::vector<StreamItem>& items, const std::atomic<bool>& stop) {
  std::vector<uint64_t> words, checksums;
  for (const StreamItem& item : items) {
    checksums.clear();
    const auto* data = static_cast<const uint8_t*>(item.memory.data);
    for (uint64_t at = 0; at < item.memory.size_bytes; at += kStreamBlockBytes) {
      if (stop.load(std::memory_order_relaxed)) return std::nullopt;
      checksums.push_back(BlockChecksum(ChecksumAlgorithm::kCrc32c, data + at,
                                        std::min(kStreamBlockBytes, item.memory.size_bytes - at)));
    }
    words.push_back(HashBytes(item.key.data(), item.key.size()));
    words.push_back(item.memory.size_bytes);
    words.push_back(HashBytes(checksums.data(), checksums.size() * sizeof(uint64_t)));
  }
  return HashBytes(words.data(), words.size() * sizeof(uint64_t));
}

}  // namespace kintsugi
