#include "runtime/net/tcp_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace kintsugi::net {
namespace {

constexpr int kKeepaliveIdleSeconds = 1;
constexpr int kKeepaliveIntervalSeconds = 1;
constexpr int kKeepaliveProbes = 3;
constexpr int kUserTimeoutMs = 2000;

std::vector<SocketAddress> LookUp(const std::string& host, uint16_t port, int flags, int* error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  *error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  std::vector<SocketAddress> addresses;
  if (*error != 0) return addresses;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
    address.length = info->ai_addrlen;
    addresses.push_back(address);
  }
  return addresses;
}

void SetInt(int fd, int level, int name, int value) { ::setsockopt(fd, level, name, &value, sizeof value); }

UniqueFd MakeSocket(int family) {
  return UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
}

Status ListenError(const std::string& place, int error) {
  const std::string text = "cannot listen on " + place + ": " + std::strerror(error);
  switch (error) {
    case EADDRINUSE:
      return {StatusCode::kUnavailable, text +
                                            ": another process has this port (ss -ltnp shows it): choose another port, "
                                            "0 for any free one, or end that process"};
    case EADDRNOTAVAIL:
      return {StatusCode::kInvalidArgument, text +
                                                ": not an address of this machine: bind to 127.0.0.1 or one that "
                                                "'ip address' shows"};
    case EACCES:
      return {StatusCode::kPermissionDenied, text + ": ports below 1024 need a privilege: choose a higher one"};
    default: return {StatusCode::kResourceExhausted, text};
  }
}

}  // namespace

uint16_t SocketAddress::port() const {
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  return 0;
}

std::string SocketAddress::ToString() const {
  char text[INET6_ADDRSTRLEN] = "unknown";
  if (storage.ss_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr, text, sizeof text);
    return "[" + std::string(text) + "]:" + std::to_string(port());
  }
  if (storage.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, text, sizeof text);
  }
  return std::string(text) + ":" + std::to_string(port());
}

std::vector<SocketAddress> ParseNumericAddress(const std::string& host, uint16_t port) {
  int error = 0;
  return LookUp(host, port, AI_NUMERICHOST, &error);
}

Result<SocketAddress> FirstAddress(const std::string& host, uint16_t port) {
  int error = 0;
  const std::vector<SocketAddress> found = LookUp(host, port, 0, &error);
  if (found.empty())
    return Status(StatusCode::kUnavailable, "looking up the name '" + host + "': " + ::gai_strerror(error));
  return found.front();
}

Result<UniqueFd> ListenTcp(const std::string& address, uint16_t port) {
  const std::string place = address + ":" + std::to_string(port);
  int error = 0;
  const std::vector<SocketAddress> found = LookUp(address, port, AI_PASSIVE, &error);
  if (found.empty()) {
    return Status(StatusCode::kInvalidArgument, "cannot listen on " + place + ": " + ::gai_strerror(error) +
                                                    ": give an address of this machine, for instance 127.0.0.1");
  }
  const SocketAddress& chosen = found.front();
  UniqueFd fd = MakeSocket(chosen.storage.ss_family);
  if (!fd.valid()) return ListenError(place, errno);
  SetInt(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  SetTcpOptions(fd.get());
  if (::bind(fd.get(), chosen.get(), chosen.length) != 0 || ::listen(fd.get(), SOMAXCONN) != 0)
    return ListenError(place, errno);
  return fd;
}

SocketAddress LocalAddress(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(fd, address.get(), &address.length) != 0) address = {};
  return address;
}

SocketAddress PeerAddress(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getpeername(fd, address.get(), &address.length) != 0) address = {};
  return address;
}

Result<UniqueFd> BeginConnect(const SocketAddress& address) {
  UniqueFd fd = MakeSocket(address.storage.ss_family);
  if (fd.valid()) {
    SetTcpOptions(fd.get());
    if (::connect(fd.get(), address.get(), address.length) == 0 || errno == EINPROGRESS) return fd;
  }
  return Status(StatusCode::kUnavailable, address.ToString() + ": " + std::strerror(errno));
}

Result<std::string> AddressTowards(const std::string& host, uint16_t port) {
  int error = 0;
  const std::vector<SocketAddress> found = LookUp(host, port, 0, &error);
  if (found.empty()) return Status(StatusCode::kUnavailable, "'" + host + "': " + ::gai_strerror(error));
  const SocketAddress& there = found.front();
  // Connecting a datagram socket only chooses the road.
  const UniqueFd fd(::socket(there.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || ::connect(fd.get(), there.get(), there.length) != 0)
    return Status(StatusCode::kUnavailable, "no road to " + there.ToString() + ": " + std::strerror(errno));
  const std::string here = LocalAddress(fd.get()).ToString();
  const std::string bare = here.substr(0, here.rfind(':'));
  return bare.front() == '[' ? bare.substr(1, bare.size() - 2) : bare;
}

Status IsHere(const std::string& host) {
  int error = 0;
  const std::vector<SocketAddress> found = LookUp(host, 0, AI_PASSIVE, &error);
  if (found.empty()) return {StatusCode::kUnavailable, "'" + host + "': " + ::gai_strerror(error)};
  const UniqueFd fd = MakeSocket(found.front().storage.ss_family);
  if (fd.valid() && ::bind(fd.get(), found.front().get(), found.front().length) == 0) return Status::Ok();
  const std::string place = found.front().ToString();
  return {StatusCode::kUnavailable, "'" + host + "', which is " + place.substr(0, place.rfind(':')) +
                                        ", is not an address of this machine (`ip address` shows them)"};
}

UniqueFd AcceptTcp(int listening_fd) {
  return UniqueFd(::accept4(listening_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

void SetTcpOptions(int fd) {
  SetInt(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetInt(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetInt(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleSeconds);
  SetInt(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveIntervalSeconds);
  SetInt(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
  SetInt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

}  // namespace kintsugi::net
