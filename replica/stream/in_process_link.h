// In-process links: two ends that live in one process, for tests and for ranks that are threads.
#pragma once

#include <memory>
#include <utility>

#include "replica/stream/link.h"

namespace kintsugi {

// The first end belongs to rank `a`, the second to rank `b`. Destroying an end closes it: the peer sees kCommFailure once
// it has taken what was sent before.
KINTSUGI_EXPORT std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> MakeInProcessLinks(Rank a, Rank b);

}  // namespace kintsugi
