// Shared-memory link: two processes (or threads) of one host and one user.
//
// Three ways for a message's bytes, the sender chooses: through the ring; straight out of the sender's memfd, which the
// receiver maps (state that the agent allocated); straight out of the sender's address space (process_vm_readv). Where the
// receiver may not read from there it says so and the bytes go through the ring.
// Threads, Errors, Ownership: as link.h says. A killed peer ends a wait within 5 ms, a closed or aborted one at once; a
// stopped one is noticed by the deadline only.
#pragma once

#include <memory>

#include "replica/stream/link.h"
#include "replica/stream/peer_process.h"
#include "replica/stream/shared_segment.h"

namespace kintsugi {

// `end` is 0 for the lower rank. The peer must hold the other end of the same segment.
KINTSUGI_EXPORT std::unique_ptr<Link> MakeSharedMemoryLink(SharedSegment segment, int end, Rank peer,
                                                           PeerProcess process);

}  // namespace kintsugi
