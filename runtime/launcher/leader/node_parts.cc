#include "runtime/launcher/leader/node_parts.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <random>

#include "runtime/base/unique_fd.h"

namespace kintsugi {
namespace {

// Below those from which connections get theirs (32768 on, unless the host says otherwise), so that none takes a port
// before it is listened on.
constexpr int kFirstFree = 15000, kLastFree = 32000;
constexpr int kTries = 200;

// 0: it is taken.
uint16_t TryPort(sockaddr_in address, uint16_t port) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  address.sin_port = htons(port);
  socklen_t size = sizeof address;
  const bool bound = fd.valid() && bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                     getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
  return bound ? ntohs(address.sin_port) : 0;
}

}  // namespace

uint16_t FreePort(const std::string& on_address, PortRange ports) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (inet_pton(AF_INET, on_address.c_str(), &address.sin_addr) != 1) address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (ports.any()) {
    std::minstd_rand random(std::random_device{}());
    std::uniform_int_distribution<int> below_connections(kFirstFree, kLastFree);
    for (int tries = 0; tries < kTries; ++tries)
      if (const uint16_t port = TryPort(address, static_cast<uint16_t>(below_connections(random)))) return port;
    return TryPort(address, 0);
  }
  for (int back = 0; back < ports.size(); ++back)
    if (const uint16_t port = TryPort(address, static_cast<uint16_t>(ports.last - back))) return port;
  return 0;
}

}  // namespace kintsugi
