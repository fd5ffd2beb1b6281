// HttpSession: one connection of an HttpServer, from its first request to its end; or, once it asked for a stream, one
// of that stream's readers. Part of HttpServer.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tools/observe/http_server.h"

namespace kintsugi::observe {

// An event as it is sent, shared by all its readers.
using SharedEvent = std::shared_ptr<const std::string>;

class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual const HttpServerOptions& options() const = 0;
    // A request; the session says Answer or BecomeReader, soon or later.
    virtual void OnRequest(const std::shared_ptr<HttpSession>& session, HttpRequest request) = 0;
    virtual void OnEnd(uint64_t id) = 0;
  };

  // `owner` outlives the session or has called Drop.
  HttpSession(uint64_t id, boost::asio::ip::tcp::socket socket, Owner* owner);
  void Start() { Read(); }
  void Drop();

  // REQUIRES: a request is unanswered; a second answer is ignored.
  void Answer(HttpResponse response);
  void BecomeReader(const std::map<std::string, SharedEvent>& begin_with);
  // REQUIRES: a reader.
  void Send(const std::string& name, SharedEvent event);

  uint64_t id() const { return id_; }
  bool idle() const { return state_ == State::kReading; }

 private:
  enum class State { kReading, kAnswering, kStreaming, kEnded };

  void Read();
  void OnRead();
  void WriteUnsent();
  void AwaitEnd();
  void End();

  const uint64_t id_;
  boost::beast::tcp_stream stream_;
  Owner* owner_;
  State state_ = State::kReading;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  boost::beast::http::response<boost::beast::http::string_body> response_;
  bool awaits_answer_ = false, keeps_ = false, head_ = false;
  unsigned version_ = 11;
  // As a reader.
  boost::beast::http::response<boost::beast::http::empty_body> opening_;
  std::optional<boost::beast::http::response_serializer<boost::beast::http::empty_body>> serializer_;
  std::map<std::string, SharedEvent> unsent_;
  SharedEvent sending_;
  char ignored_[64];
};

}  // namespace kintsugi::observe
