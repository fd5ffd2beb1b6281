// BlockHasher: checksums per block (1 MiB, or a sub-block) of bytes that come in pieces (replica/save/checksum.h).
//
// Threads: one.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/host_checksum.h"
#include "replica/save/checksum.h"
#include "runtime/base/check.h"

namespace kintsugi::formats {

class BlockHasher {
 public:
  explicit BlockHasher(uint64_t block_bytes = checkpoint::kBlockBytes) : block_bytes_(block_bytes) {}

  void Update(std::span<const uint8_t> bytes) {
    KINTSUGI_CHECK(filled_ < block_bytes_,
                   std::to_string(filled_) + " bytes of a block of " + std::to_string(block_bytes_) + " are open");
    while (!bytes.empty()) {
      const uint64_t take = std::min<uint64_t>(bytes.size(), block_bytes_ - filled_);
      if (take == block_bytes_) {
        blocks_.push_back(checkpoint::ChecksumOf(bytes.first(take)));
      } else {
        running_.Update(bytes.data(), take);
        filled_ += take;
        if (filled_ == block_bytes_) Close();
      }
      bytes = bytes.subspan(take);
    }
  }
  std::vector<checkpoint::Checksum> Finish() {
    if (filled_ > 0) Close();
    return std::move(blocks_);
  }

 private:
  void Close() {
    blocks_.push_back(running_.Value());
    running_.Reset();
    filled_ = 0;
  }

  const uint64_t block_bytes_;
  RunningChecksum running_{ChecksumAlgorithm::kXxh3};
  uint64_t filled_ = 0;
  std::vector<checkpoint::Checksum> blocks_;
};

}  // namespace kintsugi::formats
