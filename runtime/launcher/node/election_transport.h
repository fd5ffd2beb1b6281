// ElectionTransport: how launchers hear each other without a controller. Each listens where the others know; a frame goes to
// one of them over a connection that is opened when there is something to say.
//
// Threads: one, which runs the io_context.
// Errors: Listen: the address or port cannot be taken. What is sent to a launcher that cannot be reached is lost:
// the launcher that asks asks again.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "runtime/base/log.h"
#include "runtime/base/port_range.h"
#include "runtime/net/client.h"
#include "runtime/net/server.h"
#include "runtime/wire/node_codec.h"

namespace kintsugi {

class ElectionTransport {
 public:
  using Reply = std::function<void(std::string frame)>;
  struct Handlers {
    std::function<void(const wire::NodeFrame&, const Reply&)> message;
    std::function<void(const wire::NodeOrderFrame&)> order;
    // Nothing heals it: another secret, job or version.
    std::function<void(int node, const Status& why)> refused;
  };

  ElectionTransport(boost::asio::io_context& io, std::shared_ptr<LogSink> log) : io_(io), log_(std::move(log)) {}

  // `exact`: that port and no other; else another one, of `ports`, where it is taken.
  Status Listen(const std::string& job, std::shared_ptr<const net::Secret> secret,
                std::shared_ptr<const net::TlsContext> tls, const std::string& address, uint16_t port, bool exact,
                PortRange ports, Handlers handlers);
  uint16_t port() const { return server_->port(); }

  void Know(const wire::NodePlace& place);
  void Tell(int node, const std::string& frame);
  void TellAll(const std::string& frame);
  // Why it was not reached the last time; empty: it was, or was not tried.
  std::string WhyNotReached(int node) const;
  // Closes what was opened to others.
  void Quiet() { lines_.clear(); }

 private:
  struct Line {
    std::unique_ptr<net::Client> client;
    std::string waiting;  // the newest frame, until the connection is open
    bool failed = false;
    std::string why;  // the last time
  };

  void OnFrame(const net::ConnectionPtr& connection, std::string_view payload);
  void Open(int node, const wire::NodePlace& place, Line* line);

  boost::asio::io_context& io_;
  std::shared_ptr<LogSink> log_;
  std::string job_;
  std::shared_ptr<const net::Secret> secret_;
  std::shared_ptr<const net::TlsContext> tls_;
  Handlers handlers_;
  std::unique_ptr<net::Server> server_;
  std::map<int, wire::NodePlace> places_;
  std::map<int, Line> lines_;
};

}  // namespace kintsugi
