// StagedLink: device memory over a link that knows host memory only: each message goes through a buffer on the host.
//
// What: host memory passes through untouched. A message from or to device memory is copied whole (the state stream cuts
// messages to 64 MiB). What make_link falls back to where NCCL cannot be had.
// Threads, Errors, Ownership: as link.h, and errors of the device as cuda_driver.h has them.
#pragma once

#include <memory>

#include "replica/stream/cuda_driver.h"
#include "replica/stream/link.h"

namespace kintsugi {

KINTSUGI_EXPORT std::unique_ptr<Link> StageThroughHost(std::unique_ptr<Link> link, std::shared_ptr<CudaDevice> device);

}  // namespace kintsugi
