// Gloo link: two ranks, one TCP connection, messages cut into pieces of 1 MiB of which up to eight are on their way at a time:
// pieces of 512 KiB reach 0.8 of that rate, pieces of 2 MiB the same, and fewer on their way starve it.
//
// Gloo delivers a shorter message silently and ends the process on a longer one. So every message's length travels ahead of
// it on a slot of its own, and its pieces use a slot named after the length: pieces of a message of another length never
// match.
// A broken connection fails only the operations that have not begun: a piece that was half way would be waited for until the
// deadline. So a thread waits on a receive that never begins, and ends all waits when that one fails.
// Threads, Errors, Ownership: as link.h says; the peer of an aborted link sees kCommFailure when this end is destroyed.
#pragma once

#include <memory>

#include "replica/stream/gloo_group.h"
#include "replica/stream/link.h"

namespace kintsugi {

// Over a group of the two ranks, whose member 0 has the lower rank.
KINTSUGI_EXPORT std::unique_ptr<Link> MakeGlooLink(std::unique_ptr<GlooGroup> group, Rank peer);

}  // namespace kintsugi
