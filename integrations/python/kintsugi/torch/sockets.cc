#include <arpa/inet.h>
#include <netinet/in.h>
#include <sockets.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <optional>

namespace kintsugi::torch_door {
namespace {

struct End {
  int port = 0;
  std::string name;
};

std::optional<End> EndOf(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  int port = 0;
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    port = ntohs(v4.sin_port);
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    port = ntohs(v6.sin6_port);
  } else {
    return std::nullopt;
  }
  return End{port, std::string(text.data()) + " " + std::to_string(port)};
}

// Nothing: it is no TCP socket that listens or is connected.
std::optional<OpenSockets::Socket> Describe(int descriptor, uint64_t inode) {
  int type = 0;
  int listens = 0;
  socklen_t size = sizeof type;
  if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return std::nullopt;
  size = sizeof listens;
  if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0) return std::nullopt;
  sockaddr_storage address{};
  size = sizeof address;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  const auto own = EndOf(address);
  if (!own) return std::nullopt;
  OpenSockets::Socket socket{descriptor, inode, own->port, 0, own->name, ""};
  if (listens != 0) return socket;
  size = sizeof address;
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  const auto peer = EndOf(address).value_or(End{});
  socket.peer_port = peer.port;
  socket.peer = peer.name;
  return socket;
}

}  // namespace

std::vector<OpenSockets::Socket> OpenSockets::Opened() {
  constexpr int kBeyond =
      64;  // the lowest free number is given out first: behind as many free ones nothing new is open
  std::vector<Socket> opened;
  for (int descriptor = 0, free = 0; free < kBeyond; ++descriptor) {
    if (static_cast<size_t>(descriptor) == inodes_.size()) inodes_.push_back(0);
    uint64_t& known = inodes_[descriptor];
    struct stat status {};
    if (fstat(descriptor, &status) != 0) {
      known = 0;
      ++free;
      continue;
    }
    free = 0;
    if (known == status.st_ino) continue;
    known = status.st_ino;
    if (!S_ISSOCK(status.st_mode)) continue;
    if (auto described = Describe(descriptor, status.st_ino)) opened.push_back(std::move(*described));
  }
  return opened;
}

}  // namespace kintsugi::torch_door
