// The ports on which this rank may listen for other ranks.
//
// Threads: any; reads the environment.
// Errors: kInvalidArgument where KINTSUGI_PORTS is no range.
#pragma once

#include "runtime/base/port_range.h"
#include "runtime/base/result.h"

namespace kintsugi {

// What the launcher says (KINTSUGI_PORTS), else any.
Result<PortRange> PortsOfThisRank();

}  // namespace kintsugi
