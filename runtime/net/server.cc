#include "runtime/net/server.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/net/tcp_connection.h"
#include "runtime/net/tcp_socket.h"

namespace kintsugi::net {
namespace {

constexpr size_t kReadBufferBytes = 64u << 10;
constexpr int kAcceptsPerTurn = 32;
constexpr int kPatienceWithSpeakers = 4;
// After the system had no descriptor or memory for another connection.
constexpr Duration kServerAcceptPause = std::chrono::milliseconds(100);

// Connections never take the last descriptors: the process opens others too (its ranks' processes, its log).
ServerOptions FitToDescriptors(ServerOptions options) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return options;
  const size_t quarter = std::max<size_t>(1, static_cast<size_t>(limit.rlim_cur) / 4);
  options.connections_max = std::min(options.connections_max, 3 * quarter);
  options.unauthenticated_max = std::min(options.unauthenticated_max, quarter);
  return options;
}

Status ValidateOptions(const ServerOptions& options) {
  KINTSUGI_RETURN_IF_ERROR(ValidateIdentity(options.self));
  KINTSUGI_RETURN_IF_ERROR(ValidateLimits(options.limits));
  if (options.unauthenticated_max == 0 || options.unauthenticated_max > options.connections_max) {
    return {StatusCode::kInvalidArgument, "unauthenticated_max is " + std::to_string(options.unauthenticated_max) +
                                              ": it must be 1 to connections_max, which is " +
                                              std::to_string(options.connections_max)};
  }
  if (options.handshake_deadline_when_full <= Duration::zero()) {
    return {StatusCode::kInvalidArgument, "handshake_deadline_when_full must be above zero"};
  }
  return Status::Ok();
}

}  // namespace

class Server::Impl final : public TcpOwner, public std::enable_shared_from_this<Server::Impl> {
 public:
  Impl(boost::asio::io_context& io, ServerOptions options, std::shared_ptr<const Secret> secret,
       ServerHandlers handlers)
      : io_(io),
        options_(FitToDescriptors(std::move(options))),
        secret_(std::move(secret)),
        handlers_(std::move(handlers)) {}

  Status Start();
  void Stop();

  void OnAuthenticated(const TcpConnectionPtr& connection) override;
  void OnFrame(const TcpConnectionPtr& connection, std::string_view payload) override;
  void OnClosed(const TcpConnectionPtr& connection, CloseReason reason, const Status& status) override;
  std::span<char> read_buffer() override { return read_buffer_; }

  uint16_t port() const { return port_; }
  const TransportCounters& counters() const { return counters_; }
  size_t open_connections() const { return connections_.size() - unauthenticated_.size(); }
  size_t unauthenticated_connections() const { return unauthenticated_.size(); }
  const ServerOptions& options() const { return options_; }

 private:
  bool full() const { return unauthenticated_.size() >= options_.unauthenticated_max; }
  void WaitAcceptable();
  void PauseAccepting(Duration pause);
  void AcceptSome();
  void Adopt(UniqueFd fd);
  void EvictStale();

  boost::asio::io_context& io_;
  const ServerOptions options_;
  const std::shared_ptr<const Secret> secret_;
  ServerHandlers handlers_;

  std::optional<boost::asio::posix::stream_descriptor> listener_;
  std::optional<boost::asio::steady_timer> pause_;
  bool waiting_ = false;  // for the listener or the pause's end
  uint16_t port_ = 0;
  uint64_t last_id_ = 0;
  std::map<uint64_t, TcpConnectionPtr> connections_;
  std::map<uint64_t, TimePoint> unauthenticated_;  // id -> accepted at; ids grow, so the first is the oldest
  TransportCounters counters_;
  std::vector<char> read_buffer_ = std::vector<char>(kReadBufferBytes);
};

Status Server::Impl::Start() {
  KINTSUGI_RETURN_IF_ERROR(ValidateOptions(options_));
  if (!secret_) return {StatusCode::kInvalidArgument, "a server needs the job's secret"};
  KINTSUGI_ASSIGN_OR_RETURN(UniqueFd fd, ListenTcp(options_.bind_address, options_.port));
  port_ = LocalAddress(fd.get()).port();
  listener_.emplace(io_);
  pause_.emplace(io_);
  boost::system::error_code error;
  listener_->assign(fd.get(), error);
  if (error) return {StatusCode::kResourceExhausted, "epoll: " + error.message()};
  fd.Release();
  WaitAcceptable();
  return Status::Ok();
}

void Server::Impl::WaitAcceptable() {
  if (waiting_ || !listener_) return;
  if (full()) return PauseAccepting(options_.handshake_deadline_when_full);
  waiting_ = true;
  listener_->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                        [self = shared_from_this()](const boost::system::error_code& error) {
                          self->waiting_ = false;
                          if (!error && self->listener_) self->AcceptSome();
                        });
}

// New connections wait in the system's backlog meanwhile, in their order.
void Server::Impl::PauseAccepting(Duration pause) {
  waiting_ = true;
  pause_->expires_after(pause);
  pause_->async_wait([self = shared_from_this()](const boost::system::error_code&) {
    self->waiting_ = false;
    if (!self->listener_) return;
    if (self->full()) self->EvictStale();
    self->WaitAcceptable();
  });
}

void Server::Impl::AcceptSome() {
  for (int turn = 0; turn < kAcceptsPerTurn && listener_ && !full(); ++turn) {
    UniqueFd fd = AcceptTcp(listener_->native_handle());
    if (fd.valid()) {
      Adopt(std::move(fd));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return PauseAccepting(kServerAcceptPause);
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
  }
  WaitAcceptable();
}

void Server::Impl::Adopt(UniqueFd fd) {
  ++counters_.accepted;
  Nonce nonce;
  SessionId session_id;
  const bool random =
      FillRandom(nonce.data(), nonce.size()).ok() && FillRandom(session_id.data(), session_id.size()).ok();
  if (!random || connections_.size() >= options_.connections_max) {
    counters_.Count(CloseReason::kLimit, false);
    const std::string peer = PeerAddress(fd.get()).ToString();
    if (handlers_.on_refused) {
      handlers_.on_refused(
          peer, CloseReason::kLimit,
          Status(StatusCode::kResourceExhausted, "peer " + peer + ": connections are at their limit of " +
                                                     std::to_string(options_.connections_max) +
                                                     ", at most three quarters of the descriptors (ulimit -n)"));
    }
    return;
  }
  const uint64_t id = ++last_id_;
  auto connection = std::make_shared<TcpConnection>(io_, weak_from_this(), id, options_.limits,
                                                    MakeServerHandshake(options_.self, secret_, nonce, session_id),
                                                    options_.tls, TlsChannel::Side::kServer);
  connections_.emplace(id, connection);
  unauthenticated_.emplace(id, SteadyClock::SteadyNow());
  connection->Start(std::move(fd));
}

// A client speaks first, at once: a connection that has said nothing goes first. Others may be slow because thousands
// come back together.
void Server::Impl::EvictStale() {
  const TimePoint now = SteadyClock::SteadyNow();
  for (const auto& [id, accepted_at] : unauthenticated_) {
    const Duration age = now - accepted_at;
    if (age < options_.handshake_deadline_when_full) break;
    const TcpConnectionPtr& connection = connections_.at(id);
    const bool spoke = connection->stats().bytes_received > 0;
    if (spoke && age < kPatienceWithSpeakers * options_.handshake_deadline_when_full) continue;
    connection->Fail(CloseReason::kLimit,
                     Status(StatusCode::kResourceExhausted,
                            "handshake: gave way to others, unauthenticated connections are at their limit of " +
                                std::to_string(options_.unauthenticated_max)));
  }
}

void Server::Impl::OnAuthenticated(const TcpConnectionPtr& connection) {
  unauthenticated_.erase(connection->id());
  ++counters_.authenticated;
  if (pause_) pause_->cancel();
  if (handlers_.on_open) handlers_.on_open(connection);
}

void Server::Impl::OnFrame(const TcpConnectionPtr& connection, std::string_view payload) {
  if (handlers_.on_frame) handlers_.on_frame(connection, payload);
}

void Server::Impl::OnClosed(const TcpConnectionPtr& connection, CloseReason reason, const Status& status) {
  if (connections_.erase(connection->id()) == 0) return;
  unauthenticated_.erase(connection->id());
  counters_.Count(reason, connection->authenticated());
  if (pause_) pause_->cancel();
  if (!connection->authenticated()) {
    if (handlers_.on_refused) handlers_.on_refused(connection->peer_address(), reason, status);
  } else if (handlers_.on_close) {
    handlers_.on_close(connection, status);
  }
}

void Server::Impl::Stop() {
  listener_.reset();
  pause_.reset();
  for (const auto& [id, connection] : connections_) connection->Drop();
  connections_.clear();
  unauthenticated_.clear();
}

Result<std::unique_ptr<Server>> Server::Listen(boost::asio::io_context& io, ServerOptions options,
                                               std::shared_ptr<const Secret> secret, ServerHandlers handlers) {
  auto impl = std::make_shared<Impl>(io, std::move(options), std::move(secret), std::move(handlers));
  KINTSUGI_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { impl_->Stop(); }
uint16_t Server::port() const { return impl_->port(); }
const TransportCounters& Server::counters() const { return impl_->counters(); }
size_t Server::open_connections() const { return impl_->open_connections(); }
size_t Server::unauthenticated_connections() const { return impl_->unauthenticated_connections(); }
size_t Server::connections_max() const { return impl_->options().connections_max; }
size_t Server::unauthenticated_max() const { return impl_->options().unauthenticated_max; }
void Server::Stop() { impl_->Stop(); }

}  // namespace kintsugi::net
