#include "tests/unit/net/net_harness.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <cerrno>

#ifdef KINTSUGI_TEST_TLS
#include "tests/unit/net/certificates.h"
#endif

namespace kintsugi::net {
namespace {

// Every test of the transport runs over TLS where this is built for that.
std::shared_ptr<const TlsContext> TlsOfAllTests() {
#ifdef KINTSUGI_TEST_TLS
  static const std::shared_ptr<const TlsContext> context = [] {
    Authority authority;
    return TlsContext::Load(authority.Issue("everybody")).value();
  }();
  return context;
#else
  return nullptr;
#endif
}

}  // namespace

Loop::Loop() : io_(std::make_unique<boost::asio::io_context>()) {}
Loop::~Loop() = default;

bool Loop::RunUntil(const std::function<bool()>& done) {
  const TimePoint limit = SteadyClock::SteadyNow() + std::chrono::seconds(20);
  while (!done()) {
    if (SteadyClock::SteadyNow() > limit) return false;
    if (io_->stopped()) io_->restart();
    io_->run_one_for(std::chrono::milliseconds(5));
  }
  return true;
}

void Loop::RunFor(Duration time) {
  if (io_->stopped()) io_->restart();
  io_->run_for(time);
}

std::shared_ptr<const Secret> NewSecret() { return Secret::Generate().value(); }

ServerOptions RecordingServer::DefaultOptions() {
  ServerOptions options;
  options.self = {"job", "controller"};
  options.tls = TlsOfAllTests();
  return options;
}

RecordingServer::RecordingServer(Loop& loop, std::shared_ptr<const Secret> secret, ServerOptions options) {
  ServerHandlers handlers;
  handlers.on_open = [this](const ConnectionPtr& connection) { opened.push_back(connection); };
  handlers.on_frame = [this](const ConnectionPtr& connection, std::string_view payload) {
    frames.emplace_back(payload);
    if (!echo) return;
    EXPECT_TRUE(connection->Send(std::string(payload)).ok());
  };
  handlers.on_close = [this](const ConnectionPtr&, const Status& status) { closed.push_back(status); };
  handlers.on_refused = [this](const std::string&, CloseReason reason, const Status& status) {
    refused.push_back({reason, status});
  };
  auto server = Server::Listen(loop.io(), std::move(options), std::move(secret), std::move(handlers));
  EXPECT_TRUE(server.ok()) << server.status().ToString();
  server_ = std::move(server).value();
}

ClientOptions RecordingClient::DefaultOptions() {
  ClientOptions options;
  options.self = {"job", "agent"};
  options.tls = TlsOfAllTests();
  return options;
}

RecordingClient::RecordingClient(Loop& loop, std::shared_ptr<const Secret> secret, ClientOptions options) {
  ClientHandlers handlers;
  handlers.on_open = [this](const ConnectionPtr& connection) { opened.push_back(connection); };
  handlers.on_frame = [this](const ConnectionPtr&, std::string_view payload) { frames.emplace_back(payload); };
  handlers.on_close = [this](const ConnectionPtr&, const Status& status) { closed.push_back(status); };
  handlers.on_failed = [this](const Status& status) { failed.push_back(status); };
  auto client = Client::Create(loop.io(), std::move(options), std::move(secret), std::move(handlers));
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  client_ = std::move(client).value();
}

void RecordingClient::Connect(uint16_t port, Duration limit, std::string host) {
  const Status status = client_->Connect(std::move(host), port, SteadyClock::SteadyNow() + limit);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

RawPeer::RawPeer(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

bool RawPeer::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

const std::string& RawPeer::Read() {
  char buffer[65536];
  while (!ended_) {
    const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) {
      received_.append(buffer, static_cast<size_t>(got));
    } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      ended_ = true;
    } else {
      break;
    }
  }
  return received_;
}

bool RawPeer::ended() {
  Read();
  return ended_;
}

void RawPeer::Reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  fd_.Reset();
}

void RawPeer::EndWriting() { ::shutdown(fd_.get(), SHUT_WR); }

void Authenticate(Loop& loop, RawPeer& peer, std::shared_ptr<const Secret> secret, Identity self) {
  Nonce nonce;
  ASSERT_TRUE(FillRandom(nonce.data(), nonce.size()).ok());
  auto handshake = MakeClientHandshake(std::move(self), std::move(secret), nonce);
  ASSERT_TRUE(peer.Write(handshake->Begin()));
  size_t used = 0;
  bool done = false;
  ASSERT_TRUE(loop.RunUntil([&] {
    std::string_view bytes = std::string_view(peer.Read()).substr(used);
    if (bytes.empty()) return done;
    HandshakeOutput step = handshake->Consume(&bytes);
    used = peer.Read().size() - bytes.size();
    if (!step.send.empty()) peer.Write(step.send);
    EXPECT_FALSE(step.failure) << step.failure->status.ToString();
    done = step.done;
    return done;
  }));
}

std::string Frame(std::string_view payload) {
  std::string out;
  AppendFrame(&out, payload);
  return out;
}

}  // namespace kintsugi::net
