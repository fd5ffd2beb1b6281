#include "tools/observe/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <map>
#include <optional>
#include <set>

#include "runtime/net/tcp_socket.h"
#include "tools/observe/http_session.h"

namespace kintsugi::observe {
namespace {

using Error = boost::system::error_code;

// After the system had no descriptor or memory for another connection.
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);
constexpr int kAcceptsPerTurn = 16;

std::string AsEvent(const std::string& name, const std::string& data) {
  std::string text = "event: " + name + "\n";
  for (size_t at = 0; at <= data.size();) {
    const size_t end = std::min(data.find('\n', at), data.size());
    text += "data: " + data.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return text + "\n";
}

}  // namespace

class HttpServer::Impl final : public HttpSession::Owner, public std::enable_shared_from_this<HttpServer::Impl> {
 public:
  // What one path streams, and who reads it.
  class Topic final : public EventStream {
   public:
    explicit Topic(Impl* server) : server_(server) {}
    void Publish(const std::string& name, std::string data) override {
      const auto event = std::make_shared<const std::string>(AsEvent(name, data));
      newest_[name] = event;
      for (const uint64_t id : readers_)
        if (HttpSession* session = server_ ? server_->Find(id) : nullptr) session->Send(name, event);
    }
    size_t readers() const override { return readers_.size(); }

    Impl* server_;  // null once it is gone
    std::set<uint64_t> readers_;
    std::map<std::string, SharedEvent> newest_;
  };

  Impl(boost::asio::io_context& io, Handler handler, HttpServerOptions options)
      : io_(io), options_(options), handler_(std::move(handler)), listener_(io), pause_(io) {}

  Status Start(const std::string& address, uint16_t port) {
    KINTSUGI_ASSIGN_OR_RETURN(UniqueFd fd, net::ListenTcp(address, port));
    const net::SocketAddress local = net::LocalAddress(fd.get());
    address_ = local.ToString();
    port_ = local.port();
    Error error;
    listener_.assign(fd.get(), error);
    if (error) return {StatusCode::kResourceExhausted, "epoll: " + error.message()};
    (void)fd.Release();
    return Status::Ok();
  }
  void Accept() {
    listener_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [self = shared_from_this()](const Error& error) {
                           if (!error && !self->stopped_) self->AcceptSome();
                         });
  }
  void Stop() {
    stopped_ = true;
    Error ignored;
    listener_.close(ignored);
    pause_.cancel(ignored);
    for (const auto& [id, session] : std::exchange(sessions_, {})) session->Drop();
    for (const auto& [path, topic] : topics_) topic->server_ = nullptr;
  }

  const HttpServerOptions& options() const override { return options_; }

  void OnRequest(const std::shared_ptr<HttpSession>& session, HttpRequest request) override {
    const auto topic = request.method == "GET" ? topics_.find(request.path) : topics_.end();
    if (topic != topics_.end()) {
      // Others, who come and go, find a place too.
      if (Readers() >= options_.connections_max / 2)
        return session->Answer({503, "text/plain; charset=utf-8", "too many look on already\n", {}});
      topic->second->readers_.insert(session->id());
      return session->BecomeReader(topic->second->newest_);
    }
    handler_(std::move(request), [weak = std::weak_ptr(session)](HttpResponse response) {
      if (const auto asked = weak.lock()) asked->Answer(std::move(response));
    });
  }
  void OnEnd(uint64_t id) override {
    sessions_.erase(id);
    for (const auto& [path, topic] : topics_) topic->readers_.erase(id);
  }

  std::shared_ptr<EventStream> Stream(const std::string& path) {
    auto& topic = topics_[path];
    if (!topic) topic = std::make_shared<Topic>(this);
    return topic;
  }
  HttpSession* Find(uint64_t id) const {
    const auto found = sessions_.find(id);
    return found == sessions_.end() ? nullptr : found->second.get();
  }
  const std::string& address() const { return address_; }
  uint16_t port() const { return port_; }

 private:
  size_t Readers() const {
    size_t readers = 0;
    for (const auto& [path, topic] : topics_) readers += topic->readers_.size();
    return readers;
  }
  void AcceptSome() {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      UniqueFd fd = net::AcceptTcp(listener_.native_handle());
      if (fd.valid()) {
        Take(std::move(fd));
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        return Pause();
      } else {
        break;
      }
    }
    Accept();
  }
  void Pause() {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([self = shared_from_this()](const Error& error) {
      if (!error && !self->stopped_) self->Accept();
    });
  }
  // One that asks nothing gives way.
  void Take(UniqueFd fd) {
    if (sessions_.size() >= options_.connections_max) {
      const auto idle =
          std::find_if(sessions_.begin(), sessions_.end(), [](const auto& entry) { return entry.second->idle(); });
      if (idle == sessions_.end()) return;
      const std::shared_ptr<HttpSession> gives_way = idle->second;
      sessions_.erase(idle);
      gives_way->Drop();
    }
    // Control connections have two seconds; one who only looks on may be on a slow road.
    const auto patience = static_cast<unsigned>(ToMilliseconds(options_.write_deadline));
    (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
    const bool six = net::LocalAddress(fd.get()).storage.ss_family == AF_INET6;
    boost::asio::ip::tcp::socket socket(io_);
    Error error;
    socket.assign(six ? boost::asio::ip::tcp::v6() : boost::asio::ip::tcp::v4(), fd.get(), error);
    if (error) return;
    (void)fd.Release();
    const auto session = std::make_shared<HttpSession>(++last_id_, std::move(socket), this);
    sessions_[last_id_] = session;
    session->Start();
  }

  boost::asio::io_context& io_;
  const HttpServerOptions options_;
  const Handler handler_;
  boost::asio::posix::stream_descriptor listener_;
  boost::asio::steady_timer pause_;
  std::string address_;
  uint16_t port_ = 0;
  bool stopped_ = false;
  std::map<uint64_t, std::shared_ptr<HttpSession>> sessions_;
  std::map<std::string, std::shared_ptr<Topic>> topics_;
  uint64_t last_id_ = 0;
};

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(boost::asio::io_context& io, const std::string& address,
                                                       uint16_t port, Handler handler, HttpServerOptions options) {
  auto impl = std::make_shared<Impl>(io, std::move(handler), options);
  KINTSUGI_RETURN_IF_ERROR(impl->Start(address, port));
  impl->Accept();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { impl_->Stop(); }
std::shared_ptr<EventStream> HttpServer::Stream(const std::string& path) { return impl_->Stream(path); }
std::string HttpServer::address() const { return impl_->address(); }
uint16_t HttpServer::port() const { return impl_->port(); }

}  // namespace kintsugi::observe
