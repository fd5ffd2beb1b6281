// Connection: one authenticated peer, frames both ways. What Server and Client hand to their owner.
//
// Threads: only the thread that runs the io_context, which is one thread. To send from another, post there.
// Ownership: shared; Server or Client keep it while it is open. It may outlive them (it is closed then), also the
// io_context.
// Errors: Send says kResourceExhausted when the peer does not read and the queue is full (the connection is then
// closed), kInvalidArgument for a frame that may not be sent, kCommFailure when the connection is closed.
// Invariants: callbacks never run inside a call of Send, Close or Abort, they come from the io_context later. A
// callback that throws ends its connection, and the exception leaves io_context::run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/net/handshake.h"

namespace boost::asio {
class io_context;
}

namespace kintsugi::net {

struct ConnectionStats {
  uint64_t frames_sent = 0;  // handed to the operating system whole
  uint64_t frames_received = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  size_t queued_frames = 0;
  size_t queued_bytes = 0;
};

class Connection {
 public:
  virtual ~Connection() = default;

  virtual Status Send(std::string payload) = 0;

  // Sends what is queued, then ends the connection. No frame is delivered from now on; on_close follows with Ok.
  virtual void Close() = 0;
  // Ends it at once; what is queued is lost.
  virtual void Abort() = 0;

  virtual bool open() const = 0;
  virtual uint64_t id() const = 0;  // unique within its Server or Client
  virtual const PeerIdentity& peer() const = 0;
  virtual const std::string& peer_address() const = 0;  // "127.0.0.1:41234"
  virtual ConnectionStats stats() const = 0;

  // A number that the owner it was handed to remembers with it; -1 until then.
  void set_mark(int mark) { mark_ = mark; }
  int mark() const { return mark_; }

 private:
  int mark_ = -1;
};

using ConnectionPtr = std::shared_ptr<Connection>;

struct ConnectionHandlers {
  std::function<void(const ConnectionPtr&)> on_open;
  // The payload lives only during the call.
  std::function<void(const ConnectionPtr&, std::string_view payload)> on_frame;
  // Once for every on_open. Ok: this side closed it.
  std::function<void(const ConnectionPtr&, const Status&)> on_close;
};

}  // namespace kintsugi::net
