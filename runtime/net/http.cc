#include "runtime/net/http.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cstring>
#include <utility>

#include "runtime/net/tcp_socket.h"

namespace kintsugi::net {
namespace {

namespace http = boost::beast::http;
using boost::asio::ip::tcp;
using Error = boost::system::error_code;

constexpr uint64_t kBodyMax = 64 * 1024;

}  // namespace

class HttpPost::Call : public std::enable_shared_from_this<Call> {
 public:
  Call(boost::asio::io_context& io, const HttpEndpoint& to, const std::string& target, std::string json,
       OnAnswer on_answer)
      : to_(to), resolver_(io), socket_(io), timer_(io), on_answer_(std::move(on_answer)) {
    request_ = {http::verb::post, target, 11, std::move(json)};
    request_.set(http::field::host, to_.ToString());
    request_.set(http::field::content_type, "application/json");
    request_.keep_alive(false);
    request_.prepare_payload();
    parser_.body_limit(kBodyMax);
  }

  void Begin(Duration limit) {
    timer_.expires_after(limit);
    timer_.async_wait([self = shared_from_this(), limit](const Error& error) {
      if (!error)
        self->Fail(StatusCode::kDeadlineExceeded,
                   "no answer within " + std::to_string(static_cast<int64_t>(ToMilliseconds(limit))) + " ms");
    });
    resolver_.async_resolve(to_.host, std::to_string(to_.port),
                            [self = shared_from_this()](const Error& error, const tcp::resolver::results_type& found) {
                              if (error || found.empty())
                                return self->Fail(StatusCode::kUnavailable, "no such host: " + error.message());
                              self->Connect(*found.begin());
                            });
  }
  void Drop() {
    on_answer_ = nullptr;
    Close();
  }

 private:
  // Our own sockets are closed on exec: a worker that is started meanwhile inherits none.
  void Connect(const tcp::endpoint& endpoint) {
    if (!on_answer_) return;
    SocketAddress address;
    std::memcpy(address.get(), endpoint.data(), endpoint.size());
    address.length = static_cast<socklen_t>(endpoint.size());
    Result<UniqueFd> fd = BeginConnect(address);
    if (!fd.ok()) return Fail(StatusCode::kUnavailable, fd.status().message());
    Error error;
    socket_.assign(endpoint.protocol(), fd->get(), error);
    if (error) return Fail(StatusCode::kUnavailable, error.message());
    (void)fd->Release();
    socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this()](const Error& failed) {
      int refused = 0;
      socklen_t size = sizeof refused;
      if (!failed) getsockopt(self->socket_.native_handle(), SOL_SOCKET, SO_ERROR, &refused, &size);
      if (failed || refused != 0)
        return self->Fail(StatusCode::kUnavailable, failed ? failed.message() : std::strerror(refused));
      self->Ask();
    });
  }
  void Ask() {
    http::async_write(socket_, request_, [self = shared_from_this()](const Error& error, size_t) {
      if (error) return self->Fail(StatusCode::kCommFailure, error.message());
      http::async_read(self->socket_, self->buffer_, self->parser_, [self](const Error& failed, size_t) {
        if (failed) return self->Fail(StatusCode::kCommFailure, failed.message());
        self->End(HttpAnswer{static_cast<int>(self->parser_.get().result_int()), self->parser_.get().body()});
      });
    });
  }
  void Fail(StatusCode code, const std::string& why) { End(Status(code, to_.ToString() + ": " + why)); }
  void End(Result<HttpAnswer> answer) {
    Close();
    if (const OnAnswer on_answer = std::exchange(on_answer_, nullptr)) on_answer(std::move(answer));
  }
  void Close() {
    Error ignored;
    timer_.cancel(ignored);
    resolver_.cancel();
    socket_.close(ignored);
  }

  const HttpEndpoint to_;
  tcp::resolver resolver_;
  tcp::socket socket_;
  boost::asio::steady_timer timer_;
  OnAnswer on_answer_;
  http::request<http::string_body> request_;
  boost::beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
};

HttpPost::HttpPost(boost::asio::io_context& io, const HttpEndpoint& to, const std::string& target, std::string json,
                   Duration limit, OnAnswer on_answer)
    : call_(std::make_shared<Call>(io, to, target, std::move(json), std::move(on_answer))) {
  boost::asio::post(io, [call = call_, limit] { call->Begin(limit); });
}
HttpPost::~HttpPost() { call_->Drop(); }

}  // namespace kintsugi::net
