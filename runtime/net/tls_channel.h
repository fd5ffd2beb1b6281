// TlsChannel: one connection's TLS, without its socket: bytes of the wire in, bytes of the wire out. TcpConnection
// moves them, so deadlines, bounds and the end of a connection are the same with and without TLS.
//
// Threads: one.
// Ownership: the TlsContext may go before it.
// Errors: failure() says why once failed() is true; output() then still holds the alert that tells the peer.
// Invariants: nothing that the peer said is opened before its certificate was accepted.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/result.h"
#include "runtime/net/tls.h"

typedef struct ssl_st SSL;  // NOLINT: OpenSSL's own name

namespace kintsugi::net {

class TlsChannel {
 public:
  enum class Side { kClient, kServer };
  static constexpr size_t kRecordBytes = 16u << 10;  // most that one record holds

  static Result<std::unique_ptr<TlsChannel>> Create(const TlsContext& context, Side side);
  ~TlsChannel();
  TlsChannel(const TlsChannel&) = delete;
  TlsChannel& operator=(const TlsChannel&) = delete;

  // Takes what came from the socket, and goes on with the handshake. Call it once with nothing to begin.
  void Receive(std::string_view sealed);
  // The next piece of what the peer said; empty: nothing more for now. The buffer holds a record.
  std::string_view Open(std::span<char> buffer);
  // At most kRecordBytes; what comes of it is in output(). Only while open().
  void Seal(std::string_view plain);
  // Says farewell, once. False: there is nothing to say.
  bool End();

  bool open() const { return state_ == State::kOpen; }    // the handshake is done, both certificates accepted
  bool ended() const { return state_ == State::kEnded; }  // the peer has said farewell
  bool failed() const { return state_ == State::kFailed; }
  const Status& failure() const { return failure_; }
  bool foreign() const { return foreign_; }  // it failed since the peer does not speak TLS

  const std::string& output() const { return output_; }
  void Sent(size_t bytes) { output_.erase(0, bytes); }

 private:
  enum class State { kHandshake, kOpen, kEnded, kFailed };
  explicit TlsChannel(SSL* ssl) : ssl_(ssl) {}
  void Shake();
  void OnResult(int result);
  void Fail();
  void TakeOutput();

  SSL* const ssl_;
  State state_ = State::kHandshake;
  bool said_farewell_ = false;
  bool foreign_ = false;
  Status failure_;
  std::string output_;
};

}  // namespace kintsugi::net
