#include "replica/stream/stream_wire.h"

#include <algorithm>

#include "kernels/host_copy.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

constexpr uint32_t kFrameMagic = 0x4b53746d;
constexpr uint64_t kFrameBytesMax = 32 << 20;  // a manifest of 100,000 tensors with long names

struct FrameHeader {
  uint32_t magic = kFrameMagic;
  uint32_t kind = 0;
  uint64_t size_bytes = 0;
};

}  // namespace

Status SendFrame(Link& link, FrameKind kind, const std::string& body, TimePoint deadline) {
  const FrameHeader header{.kind = static_cast<uint32_t>(kind), .size_bytes = body.size()};
  KINTSUGI_RETURN_IF_ERROR(SendBytes(link, &header, sizeof(header), deadline));
  if (body.empty()) return Status::Ok();
  return SendBytes(link, body.data(), body.size(), deadline);
}

Result<Frame> ReceiveFrame(Link& link, TimePoint deadline) {
  FrameHeader header;
  KINTSUGI_RETURN_IF_ERROR(link.Receive(&header, sizeof(header), deadline));
  if (header.magic != kFrameMagic || header.size_bytes > kFrameBytesMax)
    return Status(StatusCode::kDataLoss, "rank " + link.peer().ToString() + " sent a frame of " +
                                             std::to_string(header.size_bytes) +
                                             " bytes that is no frame of the state stream");
  Frame frame{static_cast<FrameKind>(header.kind), std::string(header.size_bytes, '\0')};
  if (header.size_bytes > 0) KINTSUGI_RETURN_IF_ERROR(link.Receive(frame.body.data(), frame.body.size(), deadline));
  return frame;
}

TimePoint WaitLimit(const StreamLimits& limits, uint64_t bytes) {
  KINTSUGI_CHECK(limits.bytes_per_second_min > 0, "a stream that is waited for has a slowest rate");
  const auto transfer = std::chrono::duration<double>(static_cast<double>(bytes) / limits.bytes_per_second_min);
  const Duration wait = limits.patience + std::chrono::duration_cast<Duration>(transfer);
  return std::min(limits.deadline, SteadyClock::SteadyNow() + wait);
}

template <typename Part>
void BlockObserver::Cut(uint64_t size_bytes, Part part) {
  KINTSUGI_CHECK(filled_ < kStreamBlockBytes, "a block that is full has been ended");
  for (uint64_t at = 0; at < size_bytes;) {
    const uint64_t take = std::min(size_bytes - at, kStreamBlockBytes - filled_);
    part(at, take);
    at += take;
    filled_ += take;
    if (filled_ == kStreamBlockBytes) EndRun();
  }
}

void BlockObserver::Passed(const void* data, uint64_t size_bytes) {
  Cut(size_bytes, [&](uint64_t at, uint64_t take) { running_.Update(static_cast<const uint8_t*>(data) + at, take); });
}

void BlockObserver::Copy(void* to, const void* from, uint64_t size_bytes) {
  Cut(size_bytes, [&](uint64_t at, uint64_t take) {
    StreamCopy(static_cast<uint8_t*>(to) + at, static_cast<const uint8_t*>(from) + at, take, &running_);
  });
}

void BlockObserver::PassedSums(const uint64_t* sums, uint64_t count) {
  KINTSUGI_CHECK(WantsBlockSums() != 0, "a link's checksums stand for whole blocks, and only where they are asked for");
  checksums_.insert(checksums_.end(), sums, sums + count);
}

void BlockObserver::EndRun() {
  if (filled_ == 0) return;
  checksums_.push_back(running_.Value());
  running_.Reset();
  filled_ = 0;
}

}  // namespace kintsugi
