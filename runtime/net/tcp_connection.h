// TcpConnection: a socket, its TLS where there is one, its handshake, its frames and its end. Server and Client own it;
// others see Connection.
//
// Threads: the io_context's one thread.
// Invariants: OnClosed comes exactly once, posted, unless the owner has gone; kClosed means that the socket is closed.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/unique_fd.h"
#include "runtime/net/connection.h"
#include "runtime/net/send_queue.h"
#include "runtime/net/tls_channel.h"
#include "runtime/net/transport_options.h"

namespace kintsugi::net {

class TcpConnection;
using TcpConnectionPtr = std::shared_ptr<TcpConnection>;

class TcpOwner {
 public:
  virtual ~TcpOwner() = default;
  virtual void OnAuthenticated(const TcpConnectionPtr& connection) = 0;
  virtual void OnFrame(const TcpConnectionPtr& connection, std::string_view payload) = 0;
  virtual void OnClosed(const TcpConnectionPtr& connection, CloseReason reason, const Status& status) = 0;
  // Where bytes are received before they are looked at: one for all the owner's connections, so an idle one needs none.
  virtual std::span<char> read_buffer() = 0;
};

class TcpConnection final : public Connection, public std::enable_shared_from_this<TcpConnection> {
 public:
  TcpConnection(boost::asio::io_context& io, std::weak_ptr<TcpOwner> owner, uint64_t id, const TransportLimits& limits,
                std::unique_ptr<Handshake> handshake, std::shared_ptr<const TlsContext> tls, TlsChannel::Side side);

  // Takes the connected socket and begins the handshake.
  void Start(UniqueFd fd);
  // Ends it at once. The owner hears of it later (OnClosed).
  void Fail(CloseReason reason, Status status);
  // Ends it at once without a word to the owner, who is going away.
  void Drop();

  bool authenticated() const { return authenticated_; }

  Status Send(std::string payload) override;
  void Close() override;
  void Abort() override { Fail(CloseReason::kLocal, Status::Ok()); }
  bool open() const override { return state_ == State::kOpen; }
  uint64_t id() const override { return id_; }
  const PeerIdentity& peer() const override { return peer_; }
  const std::string& peer_address() const override { return peer_address_; }
  ConnectionStats stats() const override;

 private:
  // kDraining: nothing is delivered any more; the queue is written, then the peer's end of stream is awaited, so that
  // a last word (a refusal, a farewell) is not lost to a reset.
  enum class State { kHandshake, kOpen, kDraining, kClosed };

  void WaitReadable();
  void WaitWritable();
  void OnReadable();
  Status StartTls();
  void OnSealedBytes(std::string_view sealed);
  void OnBytes(std::string_view bytes);
  void OnHandshakeBytes(std::string_view* bytes);
  void OnFrames(std::string_view bytes);
  void OnEndOfStream();
  void OnSocketError(const char* operation, int error);
  int FlushQueue();
  void Flush();
  void Drain(CloseReason reason, Status status);
  void StartTimer(Duration limit);
  void OnTimer();
  bool closed() const { return state_ == State::kClosed; }

  boost::asio::io_context& io_;
  const std::weak_ptr<TcpOwner> owner_;
  const uint64_t id_;
  const TransportLimits limits_;
  const std::shared_ptr<const TlsContext> tls_context_;  // null: without TLS
  const TlsChannel::Side side_;

  State state_ = State::kHandshake;
  bool authenticated_ = false;
  bool waiting_writable_ = false;
  bool write_ended_ = false;
  std::unique_ptr<TlsChannel> tls_;
  std::unique_ptr<Handshake> handshake_;
  FrameDecoder decoder_;
  SendQueue queue_;
  PeerIdentity peer_;
  std::string peer_address_;
  uint64_t frames_received_ = 0;
  uint64_t bytes_received_ = 0;
  CloseReason drain_reason_ = CloseReason::kLocal;
  Status drain_status_;
  // Reset when the connection ends: a handle that its holder keeps needs no io_context any more.
  std::optional<boost::asio::posix::stream_descriptor> socket_;
  std::optional<boost::asio::steady_timer> timer_;
};

}  // namespace kintsugi::net
