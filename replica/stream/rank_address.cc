#include "replica/stream/rank_address.h"

#include <cstdlib>

#include "replica/stream/rank_ports.h"

namespace kintsugi {

std::string AddressOfThisRank() {
  const char* address = std::getenv("KINTSUGI_ADDRESS");
  return address && *address ? address : "127.0.0.1";
}

Result<PortRange> PortsOfThisRank() {
  const char* allowed = std::getenv("KINTSUGI_PORTS");
  return PortRange::Parse(allowed ? allowed : "");
}

}  // namespace kintsugi
