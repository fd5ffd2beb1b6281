// Shared-memory link: two processes (or threads) of one host and one user.
//
// Two ways for a message's bytes: through the ring, or straight out of the sender's memfd (state that the agent
// allocated), which the receiver maps. Where it may not map the file it says so and the bytes go through the ring.
// Threads: as link.h.
// Ownership: as link.h.
// Errors: as link.h. A killed peer ends a wait within 5 ms, a closed or aborted one at once; a
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
