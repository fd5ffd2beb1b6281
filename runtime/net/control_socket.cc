#include "runtime/net/control_socket.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <optional>
#include <set>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "runtime/net/control_wire.h"
#include "runtime/net/unix_socket.h"

namespace kintsugi::net {
namespace {

using boost::asio::posix::stream_descriptor;

constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

std::string Milliseconds(Duration limit) { return std::to_string(limit / std::chrono::milliseconds(1)) + " ms"; }

}  // namespace

// One caller: reads a line, hands it over, writes the answer, ends.
class ControlCaller : public std::enable_shared_from_this<ControlCaller> {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    virtual const ControlSocketOptions& options() const = 0;
    virtual void Handle(std::string request, ControlSocket::Respond respond) = 0;
    virtual void CountRefused() = 0;
    virtual void OnEnded(const std::shared_ptr<ControlCaller>& caller) = 0;
  };

  ControlCaller(boost::asio::io_context& io, std::weak_ptr<Host> host)
      : host_(std::move(host)), socket_(std::in_place, io), timer_(std::in_place, io) {}

  void Start(UniqueFd fd);
  void Drop() {
    state_ = State::kEnded;
    socket_.reset();
    timer_.reset();
  }

 private:
  enum class State { kReading, kHandling, kWriting, kEnded };
  void Wait(stream_descriptor::wait_type what, void (ControlCaller::*then)());
  void OnReadable();
  void OnLine();
  void Answer(std::string line);
  void Refuse(StatusCode code, std::string message);
  void OnWritable();
  void OnPeerWhileHandling();
  void StartTimer(Duration limit);
  void OnTimer();
  void End();

  const std::weak_ptr<Host> host_;
  State state_ = State::kReading;
  std::string line_;  // the request as it comes in, later the answer
  size_t written_ = 0;
  std::optional<stream_descriptor> socket_;
  std::optional<boost::asio::steady_timer> timer_;
};

void ControlCaller::Start(UniqueFd fd) {
  const uid_t user = PeerUser(fd.get());
  boost::system::error_code error;
  socket_->assign(fd.get(), error);
  if (error) return End();
  fd.Release();
  const auto host = host_.lock();
  if (!host) return Drop();
  StartTimer(host->options().request_deadline);
  if (Status allowed = CheckCaller(user, ::geteuid()); !allowed.ok()) return Refuse(allowed.code(), allowed.message());
  Wait(stream_descriptor::wait_read, &ControlCaller::OnReadable);
}

void ControlCaller::Wait(stream_descriptor::wait_type what, void (ControlCaller::*then)()) {
  socket_->async_wait(what, [self = shared_from_this(), then](const boost::system::error_code& error) {
    if (!error && self->state_ != State::kEnded) (*self.*then)();
  });
}

void ControlCaller::OnReadable() {
  if (state_ != State::kReading) return;
  const auto host = host_.lock();
  if (!host) return Drop();
  const size_t limit = host->options().line_bytes_max;
  std::array<char, 16384> buffer;
  const ssize_t got = ::recv(socket_->native_handle(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
    host->CountRefused();
    return End();
  }
  if (got > 0) line_.append(buffer.data(), static_cast<size_t>(got));
  const size_t end = line_.find('\n', line_.size() - static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (std::min(end, line_.size()) > limit) {
    return Refuse(StatusCode::kInvalidArgument,
                  "the request is longer than the limit of " + std::to_string(limit) + " bytes");
  }
  if (end == std::string::npos) return Wait(stream_descriptor::wait_read, &ControlCaller::OnReadable);
  line_.resize(end);
  OnLine();
}

void ControlCaller::OnLine() {
  const auto host = host_.lock();
  if (!host) return Drop();
  if (!JsonDocument::Parse(line_).ok())
    return Refuse(StatusCode::kInvalidArgument, "the request is not one line of JSON");
  state_ = State::kHandling;
  StartTimer(host->options().answer_deadline);
  Wait(stream_descriptor::wait_read, &ControlCaller::OnPeerWhileHandling);
  host->Handle(std::exchange(line_, {}), [weak = weak_from_this()](std::string response) {
    if (const auto self = weak.lock(); self && self->state_ == State::kHandling) self->Answer(std::move(response));
  });
}

// The caller has sent its line; all that may come now is its end, and then nobody waits for the answer.
void ControlCaller::OnPeerWhileHandling() {
  if (state_ != State::kHandling) return;
  char byte;
  const ssize_t got = ::recv(socket_->native_handle(), &byte, 1, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    return Wait(stream_descriptor::wait_read, &ControlCaller::OnPeerWhileHandling);
  }
  End();
}

void ControlCaller::Answer(std::string line) {
  const auto host = host_.lock();
  if (!host) return Drop();
  if (line.find('\n') != std::string::npos || line.size() > host->options().line_bytes_max) {
    line = TransportError(Status(StatusCode::kInternal, "the answer is not one line within the limit of bytes"));
  }
  line_ = std::move(line) + '\n';
  state_ = State::kWriting;
  StartTimer(host->options().request_deadline);
  OnWritable();
}

void ControlCaller::Refuse(StatusCode code, std::string message) {
  if (const auto host = host_.lock()) host->CountRefused();
  Answer(TransportError(Status(code, std::move(message))));
}

void ControlCaller::OnWritable() {
  while (written_ < line_.size()) {
    const ssize_t put =
        ::send(socket_->native_handle(), line_.data() + written_, line_.size() - written_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return Wait(stream_descriptor::wait_write, &ControlCaller::OnWritable);
    if (put < 0) break;
    written_ += static_cast<size_t>(put);
  }
  End();
}

void ControlCaller::StartTimer(Duration limit) {
  timer_->expires_after(limit);
  timer_->async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error && self->state_ != State::kEnded) self->OnTimer();
  });
}

void ControlCaller::OnTimer() {
  const auto host = host_.lock();
  if (!host) return Drop();
  switch (state_) {
    case State::kReading:
      return Refuse(StatusCode::kDeadlineExceeded,
                    "the request did not come within the limit of " + Milliseconds(host->options().request_deadline));
    case State::kHandling:
      return Answer(
          TransportError(Status(StatusCode::kDeadlineExceeded, "the run did not answer within the limit of " +
                                                                   Milliseconds(host->options().answer_deadline) +
                                                                   ": it may be amid an incident; see its log")));
    default:
      return End();
  }
}

void ControlCaller::End() {
  const auto self = shared_from_this();
  Drop();
  if (const auto host = host_.lock()) host->OnEnded(self);
}

class ControlSocket::Impl final : public ControlCaller::Host, public std::enable_shared_from_this<ControlSocket::Impl> {
 public:
  Impl(boost::asio::io_context& io, UnixPlace place, Handler handler, const ControlSocketOptions& options)
      : io_(io), place_(std::move(place)), handler_(std::move(handler)), options_(options) {}

  Status Start();
  void Stop();

  const ControlSocketOptions& options() const override { return options_; }
  void Handle(std::string request, Respond respond) override;
  void CountRefused() override { ++refused_; }
  void OnEnded(const std::shared_ptr<ControlCaller>& caller) override;
  uint64_t refused() const { return refused_; }

 private:
  void WaitAcceptable();
  void PauseAccepting();
  void AcceptOne();

  boost::asio::io_context& io_;
  const UnixPlace place_;
  const Handler handler_;
  const ControlSocketOptions options_;
  std::optional<stream_descriptor> listener_;
  std::optional<boost::asio::steady_timer> pause_;
  struct stat file_ {};
  bool waiting_ = false;  // for the listener or the pause's end
  std::set<std::shared_ptr<ControlCaller>> callers_;
  uint64_t refused_ = 0;
};

Status ControlSocket::Impl::Start() {
  KINTSUGI_ASSIGN_OR_RETURN(UniqueFd fd, ListenUnix(place_));
  if (::fstatat(place_.folder.get(), place_.name.c_str(), &file_, AT_SYMLINK_NOFOLLOW) != 0) {
    return {StatusCode::kUnavailable, place_.path + ": the socket has been taken away: choose another run folder"};
  }
  listener_.emplace(io_);
  pause_.emplace(io_);
  boost::system::error_code error;
  listener_->assign(fd.get(), error);
  if (error) return {StatusCode::kResourceExhausted, "epoll: " + error.message()};
  fd.Release();
  WaitAcceptable();
  return Status::Ok();
}

// Whatever a request leads to, its caller hears of it, and nobody else does. A failed check is more than a failed
// request.
void ControlSocket::Impl::Handle(std::string request, Respond respond) {
  const auto refuse = [&](const std::string& what) {
    ++refused_;
    respond(TransportError(Status(StatusCode::kInternal, "the request could not be handled: " + what)));
  };
  try {
    handler_(std::move(request), respond);
  } catch (const CheckFailure& failure) {
    refuse(failure.what());
    throw;
  } catch (const std::exception& error) {
    refuse(error.what());
  }
}

void ControlSocket::Impl::WaitAcceptable() {
  if (waiting_ || !listener_ || callers_.size() >= options_.callers_max) return;
  waiting_ = true;
  listener_->async_wait(stream_descriptor::wait_read,
                        [self = shared_from_this()](const boost::system::error_code& error) {
                          self->waiting_ = false;
                          if (!error && self->listener_) self->AcceptOne();
                        });
}

void ControlSocket::Impl::AcceptOne() {
  UniqueFd fd(::accept4(listener_->native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.valid()) {
    auto caller = std::make_shared<ControlCaller>(io_, weak_from_this());
    callers_.insert(caller);
    caller->Start(std::move(fd));
  } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNABORTED) {
    return PauseAccepting();
  }
  WaitAcceptable();
}

// The system has no descriptor left: to ask again at once would only burn the processor.
void ControlSocket::Impl::PauseAccepting() {
  waiting_ = true;
  pause_->expires_after(kAcceptPause);
  pause_->async_wait([self = shared_from_this()](const boost::system::error_code&) {
    self->waiting_ = false;
    self->WaitAcceptable();
  });
}

void ControlSocket::Impl::OnEnded(const std::shared_ptr<ControlCaller>& caller) {
  callers_.erase(caller);
  WaitAcceptable();
}

void ControlSocket::Impl::Stop() {
  if (!listener_) return;
  listener_.reset();
  pause_.reset();
  for (const auto& caller : callers_) caller->Drop();
  callers_.clear();
  struct stat now {};  // another run may have taken the path meanwhile: leave its file alone
  if (::fstatat(place_.folder.get(), place_.name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0 &&
      now.st_ino == file_.st_ino && now.st_dev == file_.st_dev) {
    ::unlinkat(place_.folder.get(), place_.name.c_str(), 0);
  }
}

Result<std::unique_ptr<ControlSocket>> ControlSocket::Listen(boost::asio::io_context& io, const std::string& path,
                                                             Handler handler, ControlSocketOptions options) {
  KINTSUGI_RETURN_IF_ERROR(MakeFolder(path));
  KINTSUGI_ASSIGN_OR_RETURN(UnixPlace place, OpenUnixPlace(path));
  auto impl = std::make_shared<Impl>(io, std::move(place), std::move(handler), options);
  KINTSUGI_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<ControlSocket>(new ControlSocket(std::move(impl)));
}

ControlSocket::ControlSocket(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlSocket::~ControlSocket() { impl_->Stop(); }
uint64_t ControlSocket::refused() const { return impl_->refused(); }

}  // namespace kintsugi::net
