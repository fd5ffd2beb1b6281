// AgentRelay: where the agents of a node connect to, and what passes their frames on. Every connection is a channel
// with a number of its own.
//
// While there is no controller, frames are dropped and connections kept: an agent that reconnects in a loop helps
// nobody. As soon as one is there, every connection from before it is closed, so that its agent joins anew and says
// again what it must.
// Threads: one, which runs the io_context.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "runtime/base/log.h"
#include "runtime/net/server.h"

namespace kintsugi {

class AgentRelay {
 public:
  struct Upstream {
    std::function<void(uint64_t channel, std::string_view frame)> frame;
    std::function<void(uint64_t channel)> closed;
  };
  AgentRelay(boost::asio::io_context& io, std::shared_ptr<LogSink> log) : io_(io), log_(std::move(log)) {}

  // Listens on this host alone.
  Status Listen(const std::string& job, std::shared_ptr<const net::Secret> secret,
                std::shared_ptr<const net::TlsContext> tls);
  uint16_t port() const { return server_->port(); }

  void Attach(Upstream upstream);
  void Detach() { upstream_.reset(); }
  void Send(uint64_t channel, std::string_view frame);
  void Close(uint64_t channel);

 private:
  void OnFrame(const net::ConnectionPtr& connection, std::string_view payload);
  void OnClose(const net::ConnectionPtr& connection);

  boost::asio::io_context& io_;
  std::shared_ptr<LogSink> log_;
  std::optional<Upstream> upstream_;
  std::map<uint64_t, net::ConnectionPtr> channels_;  // of the present upstream; numbers are the connections' ids
  std::map<uint64_t, net::ConnectionPtr> stale_;     // opened while there was none, or under the one before
  std::unique_ptr<net::Server> server_;
};

}  // namespace kintsugi
