// TCP link: two ranks, one connection, every message with its length ahead.
//
// The bytes go from the source's memory to the socket and from the socket to their place; an observer sees each piece
// right after the socket has, while a core's own cache holds it.
// Threads: as link.h.
// Ownership: as link.h.
// Errors: as link.h; the peer of an aborted link sees kCommFailure at once.
#pragma once

#include <memory>

#include "replica/stream/link.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi {

// Over a connected TCP socket. Bytes that the peer has sent before are messages of the link.
KINTSUGI_EXPORT std::unique_ptr<Link> MakeTcpLink(UniqueFd socket, Rank peer);

}  // namespace kintsugi
