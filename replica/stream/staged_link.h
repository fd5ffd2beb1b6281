// StagedLink: device memory over a link that knows host memory only: each message goes through a buffer on the host.
//
// What: host memory passes through untouched. A message from or to device memory is copied whole (the state stream cuts
// messages to 64 MiB), through pinned memory that the link allocates at its first such message. For state in device
// memory where there is no NCCL. Observers see the bytes in the buffer.
// Threads: as link.h.
// Ownership: as link.h.
// Errors: as link.h, and errors of the device as callbacks/state/device_memory.h has them.
#pragma once

#include <memory>

#include "callbacks/state/device_memory.h"
#include "replica/stream/link.h"

namespace kintsugi {

KINTSUGI_EXPORT std::unique_ptr<Link> StageThroughHost(std::unique_ptr<Link> link,
                                                       std::shared_ptr<const DeviceMemory> device);

}  // namespace kintsugi
