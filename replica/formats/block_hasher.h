// BlockHasher: checksums per block of 1 MiB of bytes that come in pieces (replica/save/checksum.h).
//
// Threads: one.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/host_checksum.h"
#include "replica/save/checksum.h"

namespace kintsugi::formats {

class BlockHasher {
 public:
  void Update(std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      const uint64_t take = std::min<uint64_t>(bytes.size(), checkpoint::kBlockBytes - filled_);
      if (take == checkpoint::kBlockBytes) {
        blocks_.push_back(checkpoint::ChecksumOf(bytes.first(take)));
      } else {
        running_.Update(bytes.data(), take);
        filled_ += take;
        if (filled_ == checkpoint::kBlockBytes) Close();
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

  RunningChecksum running_{ChecksumAlgorithm::kXxh3};
  uint64_t filled_ = 0;
  std::vector<checkpoint::Checksum> blocks_;
};

}  // namespace kintsugi::formats
