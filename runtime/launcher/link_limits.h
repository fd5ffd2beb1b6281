// Bounds of the connection between a node's launcher and the controller.
#pragma once

#include "runtime/net/transport_options.h"

namespace kintsugi {

// It carries the frames of all agents of a node, each with a few words around it.
inline net::TransportLimits LinkLimits(int local_ranks) {
  net::TransportLimits limits;
  limits.frame_bytes += 64 * 1024;
  limits.queue_frames *= static_cast<size_t>(local_ranks) + 1;
  limits.queue_bytes *= static_cast<size_t>(local_ranks) + 1;
  return limits;
}

}  // namespace kintsugi
