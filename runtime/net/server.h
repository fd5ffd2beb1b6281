// Server: listens on a TCP port, lets only peers in that know the job's secret, and delivers their frames.
//
// Threads: one, which runs the io_context.
// Ownership: the io_context outlives the Server; handlers run from it only, and none after Stop or the destructor.
// Errors: Listen says kUnavailable for a port in use, kInvalidArgument for an address that is not this machine's. What
// a stranger does wrong is counted, told to on_refused and touches no other connection.
// Invariants: a quarter of the process's descriptors (RLIMIT_NOFILE at Listen) is left to others: both bounds below are
// cut to that. A connection that is not authenticated costs at most a few KiB (README.md).
#pragma once

#include <memory>
#include <string>

#include "runtime/base/result.h"
#include "runtime/net/connection.h"
#include "runtime/net/tls.h"
#include "runtime/net/transport_options.h"

namespace kintsugi::net {

struct ServerOptions {
  Identity self;
  std::string bind_address = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one, see Server::port
  TransportLimits limits;
  size_t connections_max = 10000;
  size_t unauthenticated_max = 512;
  // While unauthenticated_max is reached, a handshake that has lasted this long gives way to others in the backlog; one
  // in which the client has said something, four times as long.
  Duration handshake_deadline_when_full = std::chrono::milliseconds(250);
  std::shared_ptr<const TlsContext> tls;  // null: without TLS; clients that speak it are refused, and the reverse
};

struct ServerHandlers : ConnectionHandlers {
  // A connection that ended before its handshake was complete; for the log.
  std::function<void(const std::string& peer_address, CloseReason, const Status&)> on_refused;
};

class Server {
 public:
  static Result<std::unique_ptr<Server>> Listen(boost::asio::io_context& io, ServerOptions options,
                                                std::shared_ptr<const Secret> secret, ServerHandlers handlers);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;
  const TransportCounters& counters() const;
  size_t open_connections() const;
  size_t unauthenticated_connections() const;
  // The options' bounds, cut to the descriptors that there are.
  size_t connections_max() const;
  size_t unauthenticated_max() const;

  // Stops listening and ends all connections at once (frames that the operating system has are still delivered). No
  // handler runs after it.
  void Stop();

 private:
  class Impl;
  explicit Server(std::shared_ptr<Impl> impl);

  const std::shared_ptr<Impl> impl_;
};

}  // namespace kintsugi::net
