#include "runtime/net/client.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/random.h"
#include "runtime/net/tcp_connection.h"
#include "runtime/net/tcp_socket.h"

namespace kintsugi::net {
namespace {

Status ValidateOptions(const ClientOptions& options) {
  KINTSUGI_RETURN_IF_ERROR(ValidateIdentity(options.self));
  KINTSUGI_RETURN_IF_ERROR(ValidateLimits(options.limits));
  if (options.attempt_deadline <= Duration::zero() || options.backoff_first <= Duration::zero() ||
      options.backoff_max < options.backoff_first) {
    return {StatusCode::kInvalidArgument,
            "attempt_deadline and backoff_first must be above zero, and backoff_max not below backoff_first"};
  }
  if (options.read_buffer_bytes == 0) return {StatusCode::kInvalidArgument, "read_buffer_bytes must be above zero"};
  return Status::Ok();
}

}  // namespace

// One attempt: for each address a TCP connect, then the handshake. A failed attempt is followed by a pause and the
// next. `timer_` serves whichever of these is under way; `epoch_` tells handlers of an abandoned one that they are
// late.
class Client::Impl final : public TcpOwner, public std::enable_shared_from_this<Client::Impl> {
 public:
  Impl(boost::asio::io_context& io, ClientOptions options, std::shared_ptr<const Secret> secret,
       ClientHandlers handlers, uint64_t seed)
      : io_(io),
        options_(std::move(options)),
        secret_(std::move(secret)),
        handlers_(std::move(handlers)),
        random_(seed),
        resolver_(std::in_place, io),
        timer_(std::in_place, io) {}

  Status Connect(std::string host, uint16_t port, TimePoint deadline);
  void Stop();

  void OnAuthenticated(const TcpConnectionPtr& connection) override;
  void OnFrame(const TcpConnectionPtr& connection, std::string_view payload) override;
  void OnClosed(const TcpConnectionPtr& connection, CloseReason reason, const Status& status) override;
  std::span<char> read_buffer() override { return read_buffer_; }

  ConnectionPtr connection() const { return connection_ && connection_->open() ? connection_ : nullptr; }
  const TransportCounters& counters() const { return counters_; }

 private:
  enum class State { kIdle, kConnecting, kOpen, kStopped };

  void BeginAttempt();
  void Resolve();
  void TryAddress(size_t index);
  void OnConnectDone(size_t index);
  void BeginHandshake(UniqueFd fd);
  void AddressFailed(size_t index, std::string cause);
  void AttemptFailed(std::string cause);
  void GiveUp(Status status);
  // Runs `then` after the delay unless something else was begun before.
  template <typename Then>
  void After(Duration delay, Then then);
  Duration left() const { return deadline_ - SteadyClock::SteadyNow(); }
  std::string place() const { return host_ + ":" + std::to_string(port_); }

  boost::asio::io_context& io_;
  const ClientOptions options_;
  const std::shared_ptr<const Secret> secret_;
  ClientHandlers handlers_;
  Random random_;

  State state_ = State::kIdle;
  std::string host_;
  uint16_t port_ = 0;
  TimePoint begun_;
  TimePoint deadline_;
  uint32_t attempt_ = 0;
  uint64_t epoch_ = 0;
  uint64_t last_id_ = 0;
  std::vector<SocketAddress> addresses_;
  std::optional<boost::asio::ip::tcp::resolver> resolver_;
  std::optional<boost::asio::steady_timer> timer_;
  std::optional<boost::asio::posix::stream_descriptor> connecting_;
  TcpConnectionPtr connection_;
  TransportCounters counters_;
  std::vector<char> read_buffer_ = std::vector<char>(options_.read_buffer_bytes);
};

template <typename Then>
void Client::Impl::After(Duration delay, Then then) {
  timer_->expires_after(std::max(delay, Duration::zero()));
  timer_->async_wait([self = shared_from_this(), epoch = epoch_, then](const boost::system::error_code& error) {
    if (!error && self->state_ == State::kConnecting && self->epoch_ == epoch) then();
  });
}

Status Client::Impl::Connect(std::string host, uint16_t port, TimePoint deadline) {
  if (state_ != State::kIdle) {
    const std::string state = state_ == State::kStopped
                                  ? "stopped"
                                  : "connecting or connected to " + place() + ": wait for on_close or on_failed";
    return {StatusCode::kFailedPrecondition,
            "Connect to " + host + ":" + std::to_string(port) + ": the client is " + state};
  }
  state_ = State::kConnecting;
  host_ = std::move(host);
  port_ = port;
  begun_ = SteadyClock::SteadyNow();
  deadline_ = deadline;
  attempt_ = 0;
  ++epoch_;
  After(Duration::zero(), [this] { BeginAttempt(); });
  return Status::Ok();
}

void Client::Impl::BeginAttempt() {
  ++epoch_;
  addresses_ = ParseNumericAddress(host_, port_);
  if (addresses_.empty()) return Resolve();
  TryAddress(0);
}

void Client::Impl::Resolve() {
  After(left(), [this] { AttemptFailed("looking up the name took too long"); });
  resolver_->async_resolve(
      host_, std::to_string(port_),
      [self = shared_from_this(), epoch = epoch_](const boost::system::error_code& error, const auto& results) {
        if (self->state_ != State::kConnecting || self->epoch_ != epoch) return;
        if (error) return self->AttemptFailed("looking up the name: " + error.message());
        for (const auto& result : results) {
          SocketAddress address;
          address.length = static_cast<socklen_t>(result.endpoint().size());
          std::memcpy(&address.storage, result.endpoint().data(), address.length);
          self->addresses_.push_back(address);
        }
        self->TryAddress(0);
      });
}

void Client::Impl::TryAddress(size_t index) {
  if (index >= addresses_.size()) return AttemptFailed("the name has no address");
  ++epoch_;
  Result<UniqueFd> fd = BeginConnect(addresses_[index]);
  if (!fd.ok()) return AddressFailed(index, fd.status().message());
  connecting_.emplace(io_);
  boost::system::error_code error;
  connecting_->assign(fd->get(), error);
  if (error) return AddressFailed(index, "epoll: " + error.message());
  fd->Release();
  connecting_->async_wait(boost::asio::posix::stream_descriptor::wait_write,
                          [self = shared_from_this(), epoch = epoch_, index](const boost::system::error_code& failed) {
                            if (failed || self->state_ != State::kConnecting || self->epoch_ != epoch) return;
                            self->OnConnectDone(index);
                          });
  After(std::min(options_.attempt_deadline, left()),
        [this, index] { AddressFailed(index, addresses_[index].ToString() + ": no answer"); });
}

void Client::Impl::OnConnectDone(size_t index) {
  const int fd = connecting_->native_handle();
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  const std::string address = addresses_[index].ToString();
  if (error != 0) return AddressFailed(index, address + ": " + std::strerror(error));
  // A connect to a free port of this host can meet itself (simultaneous open), and would then hold the server's port.
  if (LocalAddress(fd).ToString() == address) return AddressFailed(index, address + ": nobody listens yet");
  UniqueFd connected(connecting_->release());
  connecting_.reset();
  BeginHandshake(std::move(connected));
}

void Client::Impl::BeginHandshake(UniqueFd fd) {
  ++epoch_;
  timer_->cancel();
  ++counters_.accepted;
  Nonce nonce;
  if (Status random = FillRandom(nonce.data(), nonce.size()); !random.ok()) return AttemptFailed(random.message());
  TransportLimits limits = options_.limits;
  limits.handshake_deadline = std::clamp(left(), Duration(std::chrono::milliseconds(1)), limits.handshake_deadline);
  connection_ = std::make_shared<TcpConnection>(io_, weak_from_this(), ++last_id_, limits,
                                                MakeClientHandshake(options_.self, secret_, nonce), options_.tls,
                                                TlsChannel::Side::kClient);
  connection_->Start(std::move(fd));
}

void Client::Impl::AddressFailed(size_t index, std::string cause) {
  connecting_.reset();
  if (index + 1 < addresses_.size() && left() > Duration::zero()) return TryAddress(index + 1);
  AttemptFailed(std::move(cause));
}

void Client::Impl::AttemptFailed(std::string cause) {
  ++epoch_;
  const Duration pause = BackoffDelay(attempt_++, options_.backoff_first, options_.backoff_max, random_.Unit());
  const Duration remaining = left();
  if (remaining <= options_.backoff_first) {
    const auto elapsed = (SteadyClock::SteadyNow() - begun_) / std::chrono::milliseconds(1);
    const auto limit = (deadline_ - begun_) / std::chrono::milliseconds(1);
    return GiveUp(Status(StatusCode::kDeadlineExceeded,
                         "no connection to " + place() + " after " + std::to_string(attempt_) + " attempts in " +
                             std::to_string(elapsed) + " ms, limit " + std::to_string(limit) +
                             " ms; the last: " + cause + ": see that the server runs and that its address is right"));
  }
  // Towards the deadline attempts come closer, so that a server that came up meanwhile is not missed for a long pause.
  After(std::min(pause, remaining / 2), [this] { BeginAttempt(); });
}

void Client::Impl::GiveUp(Status status) {
  ++epoch_;
  state_ = State::kIdle;
  timer_->cancel();
  if (handlers_.on_failed) handlers_.on_failed(status);
}

void Client::Impl::OnAuthenticated(const TcpConnectionPtr& connection) {
  state_ = State::kOpen;
  ++counters_.authenticated;
  if (handlers_.on_open) handlers_.on_open(connection);
}

void Client::Impl::OnFrame(const TcpConnectionPtr& connection, std::string_view payload) {
  if (handlers_.on_frame) handlers_.on_frame(connection, payload);
}

void Client::Impl::OnClosed(const TcpConnectionPtr& connection, CloseReason reason, const Status& status) {
  if (connection != connection_ || state_ == State::kStopped) return;
  connection_.reset();
  counters_.Count(reason, connection->authenticated());
  if (!connection->authenticated()) {
    return MayRetry(reason) ? AttemptFailed(status.message()) : GiveUp(status);
  }
  state_ = State::kIdle;
  if (handlers_.on_close) handlers_.on_close(connection, status);
}

void Client::Impl::Stop() {
  state_ = State::kStopped;
  ++epoch_;
  resolver_.reset();
  timer_.reset();
  connecting_.reset();
  if (connection_) connection_->Drop();
  connection_.reset();
}

Result<std::unique_ptr<Client>> Client::Create(boost::asio::io_context& io, ClientOptions options,
                                               std::shared_ptr<const Secret> secret, ClientHandlers handlers) {
  KINTSUGI_RETURN_IF_ERROR(ValidateOptions(options));
  if (!secret) return Status(StatusCode::kInvalidArgument, "a client needs the job's secret");
  uint64_t seed = 0;
  KINTSUGI_RETURN_IF_ERROR(FillRandom(&seed, sizeof seed));
  return std::unique_ptr<Client>(
      new Client(std::make_shared<Impl>(io, std::move(options), std::move(secret), std::move(handlers), seed)));
}

Client::Client(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() { impl_->Stop(); }
Status Client::Connect(std::string host, uint16_t port, TimePoint deadline) {
  return impl_->Connect(std::move(host), port, deadline);
}
ConnectionPtr Client::connection() const { return impl_->connection(); }
const TransportCounters& Client::counters() const { return impl_->counters(); }
void Client::Stop() { impl_->Stop(); }

}  // namespace kintsugi::net
