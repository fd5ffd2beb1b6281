#include "runtime/net/transport_options.h"

#include <string>

namespace kintsugi::net {

Status ValidateLimits(const TransportLimits& limits) {
  const auto invalid = [](std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); };
  if (limits.frame_bytes == 0 || limits.frame_bytes > UINT32_MAX) {
    return invalid("limits.frame_bytes is " + std::to_string(limits.frame_bytes) + ": it must be 1 to 4294967295");
  }
  if (limits.queue_frames == 0 || limits.queue_bytes < limits.frame_bytes + kFrameHeaderBytes) {
    return invalid("limits.queue_bytes is " + std::to_string(limits.queue_bytes) + " and limits.queue_frames " +
                   std::to_string(limits.queue_frames) +
                   ": the queue must hold at least one frame of the largest size, " +
                   std::to_string(limits.frame_bytes) + " bytes and its header");
  }
  if (limits.handshake_deadline <= Duration::zero() || limits.close_deadline <= Duration::zero()) {
    return invalid("limits.handshake_deadline and limits.close_deadline must be above zero");
  }
  return Status::Ok();
}

}  // namespace kintsugi::net
