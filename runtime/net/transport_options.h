// Bounds of the transport: every wait has a deadline, every queue a bound.
#pragma once

#include <chrono>
#include <cstddef>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/frame.h"

namespace kintsugi::net {

struct TransportLimits {
  size_t frame_bytes = kDefaultFrameLimitBytes;  // payload of one frame, both ways
  size_t queue_frames = 1024;                    // unsent frames of one connection
  size_t queue_bytes = 8u << 20;                 // unsent bytes of one connection
  Duration handshake_deadline = std::chrono::seconds(2);
  Duration close_deadline = std::chrono::seconds(1);  // for what Close or a refusal still has to send
};

// Relations between the fields; the message names the one that is wrong.
Status ValidateLimits(const TransportLimits& limits);

}  // namespace kintsugi::net
