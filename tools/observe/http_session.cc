#include "tools/observe/http_session.h"

#include <utility>

namespace kintsugi::observe {
namespace {

namespace http = boost::beast::http;
using Error = boost::system::error_code;

// Nothing here is to be kept by a browser, or taken for what it is not said to be.
template <typename Response>
void SetCommon(Response* response) {
  response->set(http::field::cache_control, "no-store");
  response->set("X-Content-Type-Options", "nosniff");
  response->set("Referrer-Policy", "no-referrer");
}

}  // namespace

HttpSession::HttpSession(uint64_t id, boost::asio::ip::tcp::socket socket, Owner* owner)
    : id_(id), stream_(std::move(socket)), owner_(owner) {}

void HttpSession::Drop() {
  owner_ = nullptr;
  End();
}

void HttpSession::End() {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  Error ignored;
  stream_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_both, ignored);
  stream_.close();
  if (Owner* owner = std::exchange(owner_, nullptr)) owner->OnEnd(id_);
}

void HttpSession::Read() {
  state_ = State::kReading;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(owner_->options().header_bytes_max));
  parser_->body_limit(owner_->options().body_bytes_max);
  stream_.expires_after(owner_->options().idle_deadline);
  http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](const Error& error, size_t) {
    if (self->state_ == State::kEnded) return;
    if (!error) return self->OnRead();
    const bool too_long = error == http::error::body_limit || error == http::error::header_limit;
    if (!too_long) return self->End();
    self->keeps_ = self->head_ = false;
    self->awaits_answer_ = true;
    self->Answer({413, "text/plain; charset=utf-8", "the request is too long\n", {}});
  });
}

void HttpSession::OnRead() {
  state_ = State::kAnswering;
  const auto& request = parser_->get();
  keeps_ = request.keep_alive();
  head_ = request.method() == http::verb::head;
  version_ = request.version();
  awaits_answer_ = true;
  stream_.expires_never();
  if (!head_ && request.method() != http::verb::get && request.method() != http::verb::post)
    return Answer({405, "text/plain; charset=utf-8", "GET, HEAD or POST\n", {{"Allow", "GET, HEAD, POST"}}});
  const std::string target(request.target());
  owner_->OnRequest(shared_from_this(),
                    {head_ ? "GET" : std::string(request.method_string()), target.substr(0, target.find('?')),
                     std::string(request[http::field::accept]), std::string(request[http::field::authorization]),
                     std::string(request[http::field::host]), std::string(request[http::field::origin]),
                     std::string(request[http::field::content_type]), request.body()});
}

void HttpSession::Answer(HttpResponse response) {
  if (!std::exchange(awaits_answer_, false) || state_ == State::kEnded) return;
  state_ = State::kAnswering;
  response_ = {static_cast<http::status>(response.status), version_, std::move(response.body)};
  response_.set(http::field::content_type, response.content_type);
  SetCommon(&response_);
  for (const auto& [name, value] : response.headers) response_.set(name, value);
  response_.keep_alive(keeps_);
  response_.prepare_payload();  // a HEAD is told the length of what it is not sent
  if (head_) response_.body().clear();
  stream_.expires_after(owner_->options().write_deadline);
  http::async_write(stream_, response_, [self = shared_from_this()](const Error& error, size_t) {
    if (self->state_ == State::kEnded) return;
    self->response_ = {};
    if (error || !self->keeps_) return self->End();
    self->Read();
  });
}

void HttpSession::BecomeReader(const std::map<std::string, SharedEvent>& begin_with) {
  if (!std::exchange(awaits_answer_, false) || state_ == State::kEnded) return;
  state_ = State::kStreaming;
  unsent_ = begin_with;
  opening_ = {http::status::ok, version_};
  opening_.set(http::field::content_type, "text/event-stream");
  SetCommon(&opening_);
  opening_.keep_alive(false);
  serializer_.emplace(opening_);
  sending_ = std::make_shared<const std::string>();
  AwaitEnd();
  stream_.expires_after(owner_->options().write_deadline);
  http::async_write_header(stream_, *serializer_, [self = shared_from_this()](const Error& error, size_t) {
    if (self->state_ == State::kEnded) return;
    self->sending_ = nullptr;
    if (error) return self->End();
    self->WriteUnsent();
  });
}

// A reader says nothing more; that it is gone is heard here.
void HttpSession::AwaitEnd() {
  stream_.expires_never();
  stream_.async_read_some(boost::asio::buffer(ignored_), [self = shared_from_this()](const Error& error, size_t) {
    if (self->state_ == State::kEnded) return;
    if (error) return self->End();
    self->AwaitEnd();
  });
}

void HttpSession::Send(const std::string& name, SharedEvent event) {
  unsent_[name] = std::move(event);
  if (!sending_) WriteUnsent();
}

void HttpSession::WriteUnsent() {
  if (unsent_.empty() || state_ != State::kStreaming) return;
  sending_ = std::move(unsent_.begin()->second);
  unsent_.erase(unsent_.begin());
  stream_.expires_after(owner_->options().write_deadline);
  boost::asio::async_write(stream_, boost::asio::buffer(*sending_),
                           [self = shared_from_this()](const Error& error, size_t) {
                             if (self->state_ == State::kEnded) return;
                             self->sending_ = nullptr;
                             if (error) return self->End();
                             self->WriteUnsent();
                           });
}

}  // namespace kintsugi::observe
