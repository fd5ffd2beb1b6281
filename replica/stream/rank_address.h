// RankAddress: where this rank listens for other ranks.
//
// Threads: a value; AddressOfThisRank reads the environment.
#pragma once

#include <string>

#include "runtime/base/export.h"

namespace kintsugi {

// The address at which other ranks reach this one: what the launcher says (KINTSUGI_ADDRESS), else loopback.
KINTSUGI_EXPORT std::string AddressOfThisRank();

// An interface name wins over the host name.
struct RankAddress {
  std::string hostname = AddressOfThisRank();
  std::string interface_name;
};

}  // namespace kintsugi
