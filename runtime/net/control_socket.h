// ControlSocket: the door through which `kintsugi status`, `inject` and `save` talk to a live run. A Unix-domain stream
// socket that only its owner can open; per connection one line of JSON comes in and one goes back.
//
// Who may: the folder must be the owner's, mode 0700 (it is created so if it is not there); the socket has mode 0600;
// and each caller's user, as the kernel tells it (SO_PEERCRED), must be the server's own.
// Threads: one, which runs the io_context; ControlRequest is for other processes or threads, it blocks.
// Ownership: the io_context outlives the ControlSocket. The file is removed with it.
// Errors: Listen: kPermissionDenied (folder), kUnavailable (another live run has this path), kInvalidArgument (the path
// holds something else). A caller's mistakes are answered by {"transport_error":{"code","message"}}, which
// ControlRequest turns back into a Status.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace boost::asio {
class io_context;
}

namespace kintsugi::net {

struct ControlSocketOptions {
  size_t line_bytes_max = 1u << 20;  // of a request and of an answer
  size_t callers_max = 16;           // at once; others wait in the backlog
  Duration request_deadline = std::chrono::seconds(2);
  Duration answer_deadline = std::chrono::seconds(30);
};

class ControlSocket {
 public:
  // Answers with one line of JSON (without the line break); may be kept and called later, on the io_context's thread.
  // Only the first call counts. A caller whose answer does not come before answer_deadline is told so.
  using Respond = std::function<void(std::string response)>;
  // `request` is well-formed JSON.
  using Handler = std::function<void(std::string request, Respond respond)>;

  static Result<std::unique_ptr<ControlSocket>> Listen(boost::asio::io_context& io, const std::string& path,
                                                       Handler handler, ControlSocketOptions options = {});
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  // Requests refused so far: foreign user, not JSON, too long, too slow.
  uint64_t refused() const;

 private:
  class Impl;
  explicit ControlSocket(std::shared_ptr<Impl> impl);

  const std::shared_ptr<Impl> impl_;
};

// Sends one line of JSON and waits for the answer.
// Errors: kNotFound (no run has this socket, or it has ended), kPermissionDenied (another user's), kDeadlineExceeded
// (no answer in time), kCommFailure (closed without an answer), kInvalidArgument (not one line of at most 1 MiB).
Result<std::string> ControlRequest(const std::string& path, const std::string& json, Duration timeout);

}  // namespace kintsugi::net
