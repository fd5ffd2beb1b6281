// Frames of the state stream: a small fixed header and a protobuf message, each one message of the link.
//
// Threads: none of their own.
// Errors: the link's; kDataLoss on a frame that is not one or is larger than it may be. Internal to replica/stream.
#pragma once

#include <cstdint>
#include <string>

#include "replica/stream/link.h"
#include "replica/stream/state_stream.h"
#include "runtime/base/result.h"

namespace kintsugi {

enum class FrameKind : uint32_t { kManifest = 1, kRequest = 2, kEnd = 3, kSnapshotOffer = 4 };

struct Frame {
  FrameKind kind = FrameKind::kEnd;
  std::string body;
};

Status SendFrame(Link& link, FrameKind kind, const std::string& body, TimePoint deadline);
Result<Frame> ReceiveFrame(Link& link, TimePoint deadline);

// Now plus the patience plus `bytes` at the slowest rate, but not after the call's deadline.
TimePoint WaitLimit(const StreamLimits& limits, uint64_t bytes);

// Collects one checksum per block while the bytes of a run pass.
class BlockObserver final : public PieceObserver {
 public:
  explicit BlockObserver(ChecksumAlgorithm algorithm) : running_(algorithm) {}
  void Passed(const void* data, uint64_t size_bytes) override;
  void Copy(void* to, const void* from, uint64_t size_bytes) override;
  // Device memory: blocks begin with a run, so that a link's checksums are the stream's.
  uint64_t WantsBlockSums() const override {
    return running_.algorithm() == ChecksumAlgorithm::kMultilinear && filled_ == 0 ? kStreamBlockBytes : 0;
  }
  void PassedSums(const uint64_t* sums, uint64_t count) override;
  // Ends a run: its last block may be short.
  void EndRun();
  std::vector<uint64_t>& checksums() { return checksums_; }

 private:
  template <typename Part>
  void Cut(uint64_t size_bytes, Part part);
  RunningChecksum running_;
  uint64_t filled_ = 0;  // of the current block
  std::vector<uint64_t> checksums_;
};

}  // namespace kintsugi
