// A server on any free port of a range.
//
// Errors: as Server::Listen; kUnavailable where every port of the range is taken, and then it names the range.
#pragma once

#include <memory>
#include <string>

#include "runtime/base/port_range.h"
#include "runtime/net/server.h"

namespace kintsugi {

// With a port in `options` on that one; else on the first free one of `ports`, or on any where they are any.
inline Result<std::unique_ptr<net::Server>> ListenWithin(boost::asio::io_context& io, net::ServerOptions options,
                                                         PortRange ports, std::shared_ptr<const net::Secret> secret,
                                                         const net::ServerHandlers& handlers) {
  if (options.port != 0 || ports.any()) return net::Server::Listen(io, options, std::move(secret), handlers);
  for (int tried = 0; tried < ports.size(); ++tried) {
    options.port = static_cast<uint16_t>(ports.first + tried);
    Result<std::unique_ptr<net::Server>> server = net::Server::Listen(io, options, secret, handlers);
    if (server.ok() || server.status().code() != StatusCode::kUnavailable) return server;
  }
  return Status(StatusCode::kUnavailable, "cannot listen on " + options.bind_address +
                                              ": other processes have every port of " + ports.ToString() +
                                              " (ss -ltnp shows them): give a wider range");
}

}  // namespace kintsugi
