// The digest of state in host and device memory.
#include <algorithm>

#include "kernels/host_checksum.h"
#include "replica/stream/state_stream.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

constexpr uint64_t kDigestPieceBytes = 4 * kStreamBlockBytes;

static_assert(kDigestPieceBytes % kStreamBlockBytes == 0, "a piece that is read ahead is whole blocks");

class Digester {
 public:
  Digester(const std::atomic<bool>& stop, const DeviceMemory* device) : stop_(stop), device_(device) {}

  Status Add(const StreamItem& item) {
    checksums_.clear();
    const Memory& memory = item.memory;
    const Status summed =
        memory.kind == MemoryKind::kDevice ? SumDevice(memory) : SumHost(memory.data, memory.size_bytes);
    if (!summed.ok()) return summed.Annotate("digest of tensor '" + item.key + "'");
    KINTSUGI_CHECK(checksums_.size() == (memory.size_bytes + kStreamBlockBytes - 1) / kStreamBlockBytes,
                   "a digest is over each block once");
    words_.push_back(HashBytes(item.key.data(), item.key.size()));
    words_.push_back(memory.size_bytes);
    words_.push_back(HashBytes(checksums_.data(), checksums_.size() * sizeof(uint64_t)));
    return Status::Ok();
  }
  uint64_t Value() const { return HashBytes(words_.data(), words_.size() * sizeof(uint64_t)); }

 private:
  Status SumHost(const void* bytes, uint64_t size_bytes) {
    const auto* data = static_cast<const uint8_t*>(bytes);
    for (uint64_t at = 0; at < size_bytes; at += kStreamBlockBytes) {
      if (stop_.load(std::memory_order_relaxed)) return {StatusCode::kCancelled, "given up"};
      checksums_.push_back(
          BlockChecksum(ChecksumAlgorithm::kMultilinear, data + at, std::min(kStreamBlockBytes, size_bytes - at)));
    }
    return Status::Ok();
  }

  Status SumDevice(const Memory& memory) {
    if (!device_ || device_->device() != memory.device)
      return {StatusCode::kFailedPrecondition, "it lies on device " + std::to_string(memory.device) +
                                                   ", which cannot be reached: Agent::SetDeviceMemory"};
    const CopyLimit limit{.stop = &stop_};
    if (device_->CanSum()) {
      checksums_.resize((memory.size_bytes + kStreamBlockBytes - 1) / kStreamBlockBytes);
      return device_->BlockSums(memory.data, memory.size_bytes, kStreamBlockBytes, checksums_.data(), limit);
    }
    if (!buffer_) {
      KINTSUGI_ASSIGN_OR_RETURN(buffer_, device_->AllocateHost(kDigestPieceBytes));
    }
    const auto* data = static_cast<const uint8_t*>(memory.data);
    for (uint64_t at = 0; at < memory.size_bytes; at += kDigestPieceBytes) {
      const uint64_t piece = std::min(kDigestPieceBytes, memory.size_bytes - at);
      KINTSUGI_RETURN_IF_ERROR(device_->Read(buffer_.get(), data + at, piece, limit));
      KINTSUGI_RETURN_IF_ERROR(SumHost(buffer_.get(), piece));
    }
    return Status::Ok();
  }

  const std::atomic<bool>& stop_;
  const DeviceMemory* const device_;
  std::shared_ptr<uint8_t> buffer_;
  std::vector<uint64_t> words_, checksums_;
};

}  // namespace

uint64_t DigestState(const std::vector<StreamItem>& items) {
  const std::atomic<bool> never{false};
  return DigestState(items, never).value();
}

Result<uint64_t> DigestState(const std::vector<StreamItem>& items, const std::atomic<bool>& stop,
                             const DeviceMemory* device) {
  Digester digester(stop, device);
  for (const StreamItem& item : items) KINTSUGI_RETURN_IF_ERROR(digester.Add(item));
  return digester.Value();
}

}  // namespace kintsugi
