// Client: one connection to a Server, made with retries until a deadline.
//
// Threads: one, which runs the io_context. A host that is a name (not an address) is resolved on a thread of Asio's
// own.
// Ownership: the io_context outlives the Client; handlers run from it only, and none after Stop or the destructor.
// Errors: on_failed gets kDeadlineExceeded with the last cause when the server could not be reached in time, and at
// once what no retry can heal: kPermissionDenied (secret, TLS), kInvalidArgument (protocol version, job).
#pragma once

#include <memory>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/result.h"
#include "runtime/net/connection.h"
#include "runtime/net/tls.h"
#include "runtime/net/transport_options.h"

namespace kintsugi::net {

struct ClientOptions {
  Identity self;
  TransportLimits limits;
  // For one TCP connect to one address: less than the system waits before it asks again (1 s, then 2 s), so that a road
  // that is open again is soon found.
  Duration attempt_deadline = std::chrono::milliseconds(500);
  Duration backoff_first = std::chrono::milliseconds(10);
  Duration backoff_max = std::chrono::milliseconds(500);
  size_t read_buffer_bytes = 64u << 10;   // at most so much is taken from the socket at a time
  std::shared_ptr<const TlsContext> tls;  // null: without TLS
};

struct ClientHandlers : ConnectionHandlers {
  std::function<void(const Status&)> on_failed;  // the Connect has failed for good; Connect may be called again
};

class Client {
 public:
  static Result<std::unique_ptr<Client>> Create(boost::asio::io_context& io, ClientOptions options,
                                                std::shared_ptr<const Secret> secret, ClientHandlers handlers);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Returns at once; on_open or on_failed follows. After on_close it may be called again.
  // Errors: kFailedPrecondition while an earlier Connect is under way or its connection is open.
  Status Connect(std::string host, uint16_t port, TimePoint deadline);

  // The open connection, or null.
  ConnectionPtr connection() const;
  const TransportCounters& counters() const;

  // Gives up, ends the connection at once; no handler runs after it.
  void Stop();

 private:
  class Impl;
  explicit Client(std::shared_ptr<Impl> impl);

  const std::shared_ptr<Impl> impl_;
};

// How long to wait after the attempt-th failure (from 0): doubling up to `max`, of which a random half is taken off
// (unit in [0, 1)), so that thousands of clients do not come back in step.
Duration BackoffDelay(uint32_t attempt, Duration first, Duration max, double unit);

}  // namespace kintsugi::net
