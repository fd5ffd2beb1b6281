// RankAddress: where this rank listens for other ranks.
//
// Threads: a value; the functions read the environment.
// Errors: PortsOfThisRank: kInvalidArgument where KINTSUGI_PORTS is no range.
#pragma once

#include <string>

#include "runtime/base/export.h"
#include "runtime/base/port_range.h"
#include "runtime/base/result.h"

namespace kintsugi {

// The address at which other ranks reach this one: what the launcher says (KINTSUGI_ADDRESS), else loopback.
KINTSUGI_EXPORT std::string AddressOfThisRank();
// The ports on which this rank may listen: what the launcher says (KINTSUGI_PORTS), else any.
KINTSUGI_EXPORT Result<PortRange> PortsOfThisRank();

// An interface name wins over the host name.
struct RankAddress {
  std::string hostname = AddressOfThisRank();
  std::string interface_name;
};

}  // namespace kintsugi
