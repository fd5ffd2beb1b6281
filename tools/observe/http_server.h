// HttpServer: answers HTTP/1.1 requests (Boost.Beast) and keeps streams of events open. For a few readers who look on.
//
// Threads: one, which runs the io_context; the handler is called on it, and so must be Respond and EventStream.
// Ownership: the io_context outlives the server.
// Errors: Listen: kUnavailable, naming the address.
// Invariants: what a reader costs is bounded: so many connections, so many bytes of a request, one answer at a time; a
// reader that takes nothing is dropped after `write_deadline`. A stream of events holds, of each kind of event, only
// the newest that was not sent yet.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace boost::asio {
class io_context;
}

namespace kintsugi::observe {

// A stream of server-sent events. The publisher holds it; readers come and go.
class EventStream {
 public:
  virtual ~EventStream() = default;
  // `data` replaces what was not sent yet under this name, and is what a new reader begins with.
  virtual void Publish(const std::string& name, std::string data) = 0;
  virtual size_t readers() const = 0;
};

struct HttpRequest {
  std::string method;  // GET or POST; HEAD is answered as GET, without the body
  std::string path;    // without the query
  std::string accept;
  std::string authorization;
  std::string host;
  std::string origin;  // empty: not a browser's, or not one that says it
  std::string content_type;
  std::string body;
};

struct HttpResponse {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

struct HttpServerOptions {
  size_t connections_max = 64;
  size_t header_bytes_max = 8 * 1024;
  size_t body_bytes_max = 4 * 1024;
  Duration idle_deadline = std::chrono::minutes(2);
  Duration write_deadline = std::chrono::seconds(30);
};

class HttpServer {
 public:
  // Only the first call counts; it may come later.
  using Respond = std::function<void(HttpResponse)>;
  using Handler = std::function<void(HttpRequest request, Respond respond)>;

  static Result<std::unique_ptr<HttpServer>> Listen(boost::asio::io_context& io, const std::string& address,
                                                    uint16_t port, Handler handler, HttpServerOptions options = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // GET of this path is a stream. REQUIRES: before the io_context runs.
  std::shared_ptr<EventStream> Stream(const std::string& path);
  // "127.0.0.1:9400"
  std::string address() const;
  uint16_t port() const;

 private:
  class Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl);
  const std::shared_ptr<Impl> impl_;
};

}  // namespace kintsugi::observe
