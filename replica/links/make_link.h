// MakeLink: opens the best link between two ranks.
//
// Both ranks call it with the same generation and name; one link per name. Where both find, by trying, that they share
// memory, the link goes through shared memory, else over TCP. With kNccl on both sides it goes over NCCL where both
// ranks have a device and the same version of NCCL; where they have not, over TCP, and the log says why. Where a link
// other than NCCL's is to carry device memory, that goes by way of the host (staged_link.h).
// Threads: any, one call per link.
// Errors: the Store's; kDeadlineExceeded and kCancelled name the peer.
// Ownership: the link does not refer to the options after the call.
#pragma once

#include <memory>
#include <string>

#include "callbacks/handlers/cancel.h"
#include "callbacks/handlers/store.h"
#include "callbacks/state/device_memory.h"
#include "kernels/byte_kernels.h"
#include "replica/links/replica_options.h"
#include "replica/stream/link.h"
#include "replica/stream/rank_address.h"
#include "runtime/base/log.h"

namespace kintsugi {

// The preference of links that carry memory of `memory`, which may be null.
inline LinkPreference DeviceLink(LinkPreference prefer, const DeviceMemory* memory) {
  return prefer == LinkPreference::kAutomatic && memory && memory->HasPeerLinks() ? LinkPreference::kNccl : prefer;
}

// The preference of links that carry host memory only.
constexpr LinkPreference HostLink(LinkPreference prefer) {
  return prefer == LinkPreference::kNccl ? LinkPreference::kAutomatic : prefer;
}

struct LinkOptions {
  Generation generation;
  Rank self;
  Rank peer;
  std::string name;
  TimePoint deadline;                                  // of opening
  CancelToken* cancel = nullptr;                       // ends opening; afterwards it is the owner who calls Abort
  LinkPreference prefer = LinkPreference::kAutomatic;  // where the two ranks differ, the one that restricts wins
  RankAddress address;
  std::shared_ptr<const DeviceMemory> memory;  // that messages may lie in; null: host memory only
  // kNccl where `memory` is no CudaMemory: the CUDA device of this rank; kernels for checksums there, which may be
  // null.
  int device = -1;
  std::shared_ptr<const ByteKernels> kernels;
  std::shared_ptr<LogSink> log;  // may be null
};

KINTSUGI_EXPORT Result<std::unique_ptr<Link>> MakeLink(Store& store, const LinkOptions& options);

}  // namespace kintsugi
