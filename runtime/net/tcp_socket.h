// TCP sockets at the system-call level: created close-on-exec and non-blocking in one step (a worker that is spawned at
// that very moment inherits nothing; Asio would set the flag later or never), with every option that finds a lost peer.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi::net {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  uint16_t port() const;
  std::string ToString() const;  // "127.0.0.1:4000", "[::1]:4000"
};

// Addresses of a host that is written as numbers; empty if it is a name.
std::vector<SocketAddress> ParseNumericAddress(const std::string& host, uint16_t port);

// The first address of a host; kUnavailable where its name is not known.
Result<SocketAddress> FirstAddress(const std::string& host, uint16_t port);

// Listens on the address (a name is looked up, which may block).
Result<UniqueFd> ListenTcp(const std::string& address, uint16_t port);
SocketAddress LocalAddress(int fd);
SocketAddress PeerAddress(int fd);

// Begins a connect; Unavailable names the address and the system's reason.
Result<UniqueFd> BeginConnect(const SocketAddress& address);

// This host's own address on the way to another, as numbers. Nothing is sent.
Result<std::string> AddressTowards(const std::string& host, uint16_t port);
// Whether one could listen there. kUnavailable: the name is not known, or no interface has the address; both may come.
Status IsHere(const std::string& host);

// Takes one connection; invalid with errno set if there is none. It has the listening socket's options.
UniqueFd AcceptTcp(int listening_fd);

// TCP_NODELAY, keepalive after 1 s of silence (3 probes, 1 s apart) and TCP_USER_TIMEOUT of 2 s. Keepalive alone never
// finds a peer that is lost while data is in flight, the user timeout alone never one that is lost while idle.
void SetTcpOptions(int fd);

}  // namespace kintsugi::net
