#include "runtime/net/tcp_connection.h"

#include <sys/socket.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/net/tcp_socket.h"

namespace kintsugi::net {
namespace {

// After so many buffers the other connections have their turn.
constexpr int kReadsPerTurn = 8;

std::string Milliseconds(Duration limit) { return std::to_string(limit / std::chrono::milliseconds(1)) + " ms"; }

}  // namespace

TcpConnection::TcpConnection(boost::asio::io_context& io, std::weak_ptr<TcpOwner> owner, uint64_t id,
                             const TransportLimits& limits, std::unique_ptr<Handshake> handshake,
                             std::shared_ptr<const TlsContext> tls, TlsChannel::Side side)
    : io_(io),
      owner_(std::move(owner)),
      id_(id),
      limits_(limits),
      tls_context_(std::move(tls)),
      side_(side),
      handshake_(std::move(handshake)),
      decoder_(limits.frame_bytes),
      queue_(limits) {}

void TcpConnection::Start(UniqueFd fd) {
  peer_address_ = PeerAddress(fd.get()).ToString();
  boost::system::error_code error;
  socket_.emplace(io_);
  timer_.emplace(io_);
  socket_->assign(fd.get(), error);
  if (error) return Fail(CloseReason::kLimit, Status(StatusCode::kResourceExhausted, "epoll: " + error.message()));
  fd.Release();
  StartTimer(limits_.handshake_deadline);
  if (Status begun = StartTls(); !begun.ok()) return Fail(CloseReason::kLimit, std::move(begun));
  if (std::string first = handshake_->Begin(); !first.empty()) queue_.PushRaw(std::move(first));
  Flush();
  if (!closed()) WaitReadable();
}

// A client speaks first: its first words are in the channel's output afterwards.
Status TcpConnection::StartTls() {
  if (!tls_context_) return Status::Ok();
  KINTSUGI_ASSIGN_OR_RETURN(tls_, TlsChannel::Create(*tls_context_, side_));
  tls_->Receive({});
  return Status::Ok();
}

void TcpConnection::WaitReadable() {
  socket_->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [self = shared_from_this()](const boost::system::error_code& error) {
                        if (!error && !self->closed()) self->OnReadable();
                      });
}

void TcpConnection::WaitWritable() {
  if (waiting_writable_) return;
  waiting_writable_ = true;
  socket_->async_wait(boost::asio::posix::stream_descriptor::wait_write,
                      [self = shared_from_this()](const boost::system::error_code& error) {
                        self->waiting_writable_ = false;
                        if (!error && !self->closed()) self->Flush();
                      });
}

void TcpConnection::OnReadable() {
  const std::shared_ptr<TcpOwner> owner = owner_.lock();
  if (!owner) return Drop();
  const std::span<char> buffer = owner->read_buffer();
  for (int turn = 0; turn < kReadsPerTurn; ++turn) {
    const ssize_t got = ::recv(socket_->native_handle(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got < 0) return OnSocketError("receive", errno);
    if (got == 0) return OnEndOfStream();
    bytes_received_ += static_cast<uint64_t>(got);
    try {
      const std::string_view bytes(buffer.data(), static_cast<size_t>(got));
      tls_ ? OnSealedBytes(bytes) : OnBytes(bytes);
    } catch (...) {
      Fail(CloseReason::kLocal, Status(StatusCode::kInternal, "a handler threw"));
      throw;
    }
    if (closed()) return;
    if (static_cast<size_t>(got) < buffer.size()) break;
  }
  WaitReadable();
}

void TcpConnection::OnSealedBytes(std::string_view sealed) {
  if (state_ == State::kDraining) return;
  tls_->Receive(sealed);
  std::array<char, TlsChannel::kRecordBytes> record;
  while (!closed()) {
    const std::string_view plain = tls_->Open(record);
    if (plain.empty()) break;
    OnBytes(plain);
  }
  if (closed() || state_ == State::kDraining) return;
  // The alert tells the peer. To a client another program on the port is what it is without TLS: it may go.
  const bool other_program = tls_->foreign() && side_ == TlsChannel::Side::kClient;
  if (tls_->failed()) return Drain(other_program ? CloseReason::kMagic : CloseReason::kTls, tls_->failure());
  if (tls_->ended()) return OnEndOfStream();
  if (!waiting_writable_) Flush();
}

void TcpConnection::OnBytes(std::string_view bytes) {
  if (state_ == State::kHandshake) OnHandshakeBytes(&bytes);
  if (state_ == State::kOpen) OnFrames(bytes);
}

void TcpConnection::OnHandshakeBytes(std::string_view* bytes) {
  HandshakeOutput step = handshake_->Consume(bytes);
  const bool has_answer = !step.send.empty();
  if (has_answer) queue_.PushRaw(std::move(step.send));
  if (step.failure) {
    if (!has_answer) return Fail(step.failure->reason, std::move(step.failure->status));
    return Drain(step.failure->reason, std::move(step.failure->status));
  }
  if (has_answer) Flush();
  if (closed() || !step.done) return;
  state_ = State::kOpen;
  authenticated_ = true;
  peer_ = handshake_->peer();
  handshake_.reset();
  timer_->cancel();
  if (const auto owner = owner_.lock()) owner->OnAuthenticated(shared_from_this());
}

void TcpConnection::OnFrames(std::string_view bytes) {
  const std::shared_ptr<TcpOwner> owner = owner_.lock();
  if (!owner) return Drop();
  const TcpConnectionPtr self = shared_from_this();
  while (state_ == State::kOpen) {
    const FrameEvent event = decoder_.Next(&bytes);
    switch (event.kind) {
      case FrameEvent::Kind::kNeedMore: return;
      case FrameEvent::Kind::kEmpty:
        return Fail(CloseReason::kFrameEmpty, Status(StatusCode::kDataLoss, "a frame of length zero"));
      case FrameEvent::Kind::kOversized:
        return Fail(CloseReason::kFrameOversized,
                    Status(StatusCode::kDataLoss, "a frame of " + std::to_string(event.announced_bytes) +
                                                      " bytes, limit " + std::to_string(decoder_.limit_bytes())));
      case FrameEvent::Kind::kFrame: ++frames_received_; owner->OnFrame(self, event.payload);
    }
  }
}

void TcpConnection::OnEndOfStream() {
  switch (state_) {
    case State::kHandshake: {
      if (tls_ && !tls_->open())
        return Fail(CloseReason::kPeer,
                    Status(StatusCode::kCommFailure,
                           "TLS: the peer closed the connection before TLS was agreed: it may have ended, or not speak "
                           "TLS: start all processes of a run with the same --tls options"));
      HandshakeFailure failure = handshake_->AtEndOfStream();
      return Fail(failure.reason, std::move(failure.status));
    }
    case State::kOpen:
      if (decoder_.mid_frame()) {
        return Fail(CloseReason::kFrameTruncated, Status(StatusCode::kDataLoss, "the stream ended within a frame"));
      }
      return Fail(CloseReason::kPeer, Status(StatusCode::kCommFailure, "the peer closed the connection"));
    case State::kDraining: return Fail(CloseReason::kPeer, Status::Ok());
    case State::kClosed: return;
  }
}

void TcpConnection::OnSocketError(const char* operation, int error) {
  Fail(CloseReason::kPeer,
       Status(StatusCode::kCommFailure, std::string("connection lost: ") + operation + ": " + std::strerror(error)));
}

Status TcpConnection::Send(std::string payload) {
  if (state_ != State::kOpen) return {StatusCode::kCommFailure, "peer " + peer_address_ + ": the connection is closed"};
  if (payload.empty() || payload.size() > limits_.frame_bytes) {
    return {StatusCode::kInvalidArgument, "peer " + peer_address_ + ": a frame of " + std::to_string(payload.size()) +
                                              " bytes; allowed are 1 to " + std::to_string(limits_.frame_bytes)};
  }
  if (!queue_.PushFrame(std::move(payload))) {
    Status full(StatusCode::kResourceExhausted, "send queue full (" + std::to_string(queue_.frames()) + " frames, " +
                                                    std::to_string(queue_.bytes()) + " bytes; limits " +
                                                    std::to_string(limits_.queue_frames) + ", " +
                                                    std::to_string(limits_.queue_bytes) + "): the peer does not read");
    Fail(CloseReason::kQueue, full);
    return full.Annotate("peer " + peer_address_);
  }
  if (!waiting_writable_) Flush();
  return Status::Ok();
}

void TcpConnection::Close() {
  if (state_ == State::kOpen) return Drain(CloseReason::kLocal, Status::Ok());
  if (state_ == State::kHandshake) Fail(CloseReason::kLocal, Status::Ok());
}

void TcpConnection::Drain(CloseReason reason, Status status) {
  state_ = State::kDraining;
  drain_reason_ = reason;
  drain_status_ = std::move(status);
  StartTimer(limits_.close_deadline);
  Flush();
}

int TcpConnection::FlushQueue() {
  const int fd = socket_->native_handle();
  return tls_ ? queue_.FlushSealed(fd, *tls_) : queue_.Flush(fd);
}

void TcpConnection::Flush() {
  int error = FlushQueue();
  if (error == 0 && state_ == State::kDraining && tls_ && tls_->End()) error = FlushQueue();
  if (error == EAGAIN) return WaitWritable();
  if (error != 0) return OnSocketError("send", error);
  if (state_ == State::kDraining && !write_ended_) {
    write_ended_ = true;
    ::shutdown(socket_->native_handle(), SHUT_WR);
  }
}

void TcpConnection::StartTimer(Duration limit) {
  timer_->expires_after(limit);
  timer_->async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error && !self->closed()) self->OnTimer();
  });
}

void TcpConnection::OnTimer() {
  if (state_ == State::kOpen) return;
  Fail(CloseReason::kTimeout, Status(StatusCode::kDeadlineExceeded, "handshake: not complete after the limit of " +
                                                                        Milliseconds(limits_.handshake_deadline)));
}

void TcpConnection::Fail(CloseReason reason, Status status) {
  if (closed()) return;
  if (state_ == State::kDraining) {  // whatever ends it now, the cause is the one it drains for
    reason = drain_reason_;
    status = std::move(drain_status_);
  }
  Drop();
  boost::asio::post(io_, [self = shared_from_this(), reason, status = status.Annotate("peer " + peer_address_)] {
    if (const auto owner = self->owner_.lock()) owner->OnClosed(self, reason, status);
  });
}

void TcpConnection::Drop() {
  state_ = State::kClosed;
  queue_.Clear();
  socket_.reset();
  timer_.reset();
}

ConnectionStats TcpConnection::stats() const {
  return {.frames_sent = queue_.frames_sent(),
          .frames_received = frames_received_,
          .bytes_sent = queue_.bytes_sent(),
          .bytes_received = bytes_received_,
          .queued_frames = queue_.frames(),
          .queued_bytes = queue_.bytes()};
}

}  // namespace kintsugi::net
