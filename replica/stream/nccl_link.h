// NCCL link: two ranks, two communicators of their own, one for each direction.
//
// What: messages between any memory of the two ranks, device or host; host memory is staged through pinned and device
// buffers of the link. A message's length travels ahead of it; its bytes follow in pieces of `piece_bytes`, of which
// `in_flight` are on their way, each with an event. Two communicators, because operations of one run in the order of
// their launch: two ranks that both send first would wait for each other's receives. Never the training communicators:
// a repair that fails poisons nothing, and `ctas_max` bounds what it takes from a healthy rank's device.
// Ownership: as link.h.
// Threads: as link.h. A wait is a query of the event, of the communicators' state, of the abort flag and
// of the deadline in turn, never a synchronization. Abort ends waits within a millisecond and frees the communicators
// on a thread of its own; the destructor waits for that, so that nothing is written into device memory afterwards.
// Errors: as link.h. A peer that dies or aborts is seen at once over sockets; over NVLink and in shared memory NCCL
// says nothing, and the runtime aborts. After a message of another size (kDataLoss) the sender waits for its deadline
// or abort in the same way.
// Observers: of device memory an observer that can do with checksums gets these, computed on the device behind each
// piece; any other observer sees a copy of the bytes.
#pragma once

#include <memory>
#include <string>

#include "callbacks/handlers/store.h"
#include "kernels/byte_kernels.h"
#include "replica/stream/link.h"
#include "replica/stream/nccl_communicators.h"

namespace kintsugi {

struct NcclLinkOptions {
  std::string prefix;  // names the link in the store; no two links of one store share it
  Rank self;
  Rank peer;
  TimePoint deadline;             // of opening
  CancelToken* cancel = nullptr;  // ends opening
  uint64_t piece_bytes = 64 << 20;
  int in_flight = 3;
  int ctas_max = 16;
  std::shared_ptr<const ByteKernels> kernels;  // of the device; null: observers get copies
};

// Both ranks call it with the same prefix, as two ranks of one NCCL version.
KINTSUGI_EXPORT Result<std::unique_ptr<Link>> MakeNcclLink(Store& store, std::shared_ptr<const NcclApi> api,
                                                           std::shared_ptr<CudaDevice> device,
                                                           const NcclLinkOptions& options);

}  // namespace kintsugi
