// HttpPost: one POST over HTTP/1.1, a connection for itself (Boost.Beast). For what is asked about once a second.
//
// Threads: one, which runs the io_context; the answer comes on it, never from inside Begin. The limit covers everything
// from looking the name up to the answer's last byte.
// Errors: kDeadlineExceeded, kUnavailable (no connection), kCommFailure (what came is no answer); each names the
// endpoint. An answer with any HTTP status is an answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace boost::asio {
class io_context;
}

namespace kintsugi::net {

struct HttpEndpoint {
  std::string host;
  uint16_t port = 0;
  std::string ToString() const {
    return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
  }
};

struct HttpAnswer {
  int status = 0;
  std::string body;  // 64 KiB at most
};

class HttpPost {
 public:
  using OnAnswer = std::function<void(Result<HttpAnswer>)>;
  HttpPost(boost::asio::io_context& io, const HttpEndpoint& to, const std::string& target, std::string json,
           Duration limit, OnAnswer on_answer);
  // Before the answer: it is not wanted any more.
  ~HttpPost();
  HttpPost(const HttpPost&) = delete;
  HttpPost& operator=(const HttpPost&) = delete;

 private:
  class Call;
  std::shared_ptr<Call> call_;
};

}  // namespace kintsugi::net
