// TLS between real sockets: who is let in, what the others are told, and that nobody else notices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <thread>

#include "runtime/net/tcp_socket.h"
#include "runtime/net/tls_channel.h"
#include "tests/unit/net/certificates.h"
#include "tests/unit/net/net_harness.h"

namespace kintsugi::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class Tls : public ::testing::Test {
 protected:
  void SetUp() override { Begin(seconds(2)); }
  void Begin(Duration handshake_deadline) {
    ServerOptions options = RecordingServer::DefaultOptions();
    options.tls = context;
    options.limits.handshake_deadline = handshake_deadline;
    witness.reset();
    server = std::make_unique<RecordingServer>(loop, secret, options);
    witness = NewClient(context);
    witness->Connect(server->port());
    ASSERT_TRUE(loop.RunUntil([&] { return witness->opened.size() == 1 && server->opened.size() == 1; }));
  }
  void TearDown() override {
    ASSERT_NE(witness->connection(), nullptr) << "the running connection was disturbed";
    const size_t before = witness->frames.size();
    ASSERT_TRUE(witness->connection()->Send("still here").ok());
    EXPECT_TRUE(loop.RunUntil([&] { return witness->frames.size() == before + 1; }));
    EXPECT_TRUE(witness->closed.empty());
  }
  std::unique_ptr<RecordingClient> NewClient(std::shared_ptr<const TlsContext> tls,
                                             std::shared_ptr<const Secret> knows = nullptr) {
    ClientOptions options = RecordingClient::DefaultOptions();
    options.tls = std::move(tls);
    return std::make_unique<RecordingClient>(loop, knows ? knows : secret, options);
  }
  // The client fails at once, the server counts a refusal for want of TLS.
  void ExpectRefused(std::shared_ptr<const TlsContext> tls, const std::string& server_says,
                     const std::string& client_says) {
    const auto stranger = NewClient(std::move(tls));
    stranger->Connect(server->port(), milliseconds(5000));
    ASSERT_TRUE(loop.RunUntil([&] { return stranger->failed.size() == 1 && server->refused.size() >= 1; }));
    EXPECT_TRUE(stranger->opened.empty());
    EXPECT_EQ(stranger->failed[0].code(), StatusCode::kPermissionDenied);
    EXPECT_THAT(stranger->failed[0].message(), HasSubstr(client_says));
    EXPECT_EQ(server->counters().refused_tls, 1u);
    EXPECT_EQ(server->refused[0].reason, CloseReason::kTls);
    EXPECT_THAT(server->refused[0].status.message(), HasSubstr(server_says));
  }

  Loop loop;
  std::shared_ptr<const Secret> secret = NewSecret();
  Authority authority;
  std::shared_ptr<const TlsContext> context = TlsContext::Load(authority.Issue("controller")).value();
  std::unique_ptr<RecordingServer> server;
  std::unique_ptr<RecordingClient> witness;
};

TEST_F(Tls, AnotherCertificateOfTheAuthorityIsLetIn) {
  const auto other = NewClient(TlsContext::Load(authority.Issue("node-1")).value());
  other->Connect(server->port());
  ASSERT_TRUE(loop.RunUntil([&] { return other->opened.size() == 1; }));
  const std::string large(3 << 20, 'x');
  for (const std::string& frame : {std::string("small"), large, std::string("again")})
    ASSERT_TRUE(other->connection()->Send(frame).ok());
  ASSERT_TRUE(loop.RunUntil([&] { return other->frames.size() == 3; }));
  EXPECT_EQ(other->frames[1], large);
  EXPECT_EQ(server->counters().authenticated, 2u);
}

TEST_F(Tls, ACertificateOfAnotherAuthorityIsRefused) {
  Authority stranger("another CA");
  // Each side refuses the other's: whichever is heard first.
  ExpectRefused(TlsContext::Load(stranger.Issue("intruder")).value(), "refuse", "is refused");
}

TEST_F(Tls, ACertificateThatExpiresMeanwhileIsRefused) {
  const auto short_lived = TlsContext::Load(authority.Issue("short-lived", -3600, 2)).value();
  std::this_thread::sleep_for(seconds(3));
  ExpectRefused(short_lived, "certificate has expired", "refuses this side's certificate");
}

// Of a rank and its launcher, or of one process.
TEST_F(Tls, TheOwnCertificateIsTakenWhenItHasExpired) {
  const TlsFiles files = authority.Issue("short-lived", -3600, 2);
  context = TlsContext::Load(files).value();
  Begin(seconds(2));
  std::this_thread::sleep_for(seconds(3));
  EXPECT_FALSE(TlsContext::Load(files).ok());
  const auto rank = NewClient(TlsContext::Load(files, OwnExpired::kTaken).value());
  rank->Connect(server->port());
  ASSERT_TRUE(loop.RunUntil([&] { return rank->opened.size() == 1; }));
  EXPECT_EQ(server->counters().refused_tls, 0u);
}

// A process that has not looked at the files yet shows the one before, which has ended meanwhile.
TEST_F(Tls, ACertificateThatWasTheOwnOneBeforeIsTakenToo) {
  const TlsFiles files = authority.Issue("host", -3600, -1), next = authority.Issue("next");
  const auto late = TlsContext::Load(files, OwnExpired::kTaken).value();
  context = TlsContext::Load(files, OwnExpired::kTaken).value();
  const auto before = context->get();
  context->Follow();
  authority.Write("host.key", ReadText(next.key));
  authority.Write("host.pem", ReadText(next.certificate));
  for (int i = 0; i < 6000 && context->get() == before; ++i) std::this_thread::sleep_for(milliseconds(10));
  Begin(seconds(2));
  const auto rank = NewClient(late);
  rank->Connect(server->port());
  ASSERT_TRUE(loop.RunUntil([&] { return rank->opened.size() == 1; }));
  EXPECT_EQ(server->counters().refused_tls, 0u);
}

TEST_F(Tls, WhoShowsNoCertificateIsRefused) {
  SSL_CTX* bare = SSL_CTX_new(TLS_client_method());
  SSL* ssl = SSL_new(bare);
  RawPeer peer(server->port());
  SSL_set_fd(ssl, peer.fd());
  std::thread shaking([&] {
    if (SSL_connect(ssl) == 1) {  // with TLS 1.3 the client's part ends before its certificate is looked at
      char byte = 0;
      EXPECT_LE(SSL_read(ssl, &byte, 1), 0);
    }
  });
  EXPECT_TRUE(loop.RunUntil([&] { return server->counters().refused_tls == 1; }));
  SSL_shutdown(ssl);
  peer.EndWriting();
  shaking.join();
  SSL_free(ssl);
  SSL_CTX_free(bare);
  EXPECT_THAT(server->refused.at(0).status.message(), HasSubstr("no certificate"));
}

// Although its certificate is good.
TEST_F(Tls, AnOlderVersionIsRefused) {
  const TlsFiles files = authority.Issue("of-old");
  SSL_CTX* old = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_max_proto_version(old, TLS1_2_VERSION);
  ASSERT_EQ(SSL_CTX_use_certificate_file(old, files.certificate.c_str(), SSL_FILETYPE_PEM), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey_file(old, files.key.c_str(), SSL_FILETYPE_PEM), 1);
  SSL* ssl = SSL_new(old);
  RawPeer peer(server->port());
  SSL_set_fd(ssl, peer.fd());
  std::thread shaking([&] { EXPECT_NE(SSL_connect(ssl), 1); });
  EXPECT_TRUE(loop.RunUntil([&] { return server->counters().refused_tls == 1; }));
  shaking.join();
  SSL_free(ssl);
  SSL_CTX_free(old);
}

TEST_F(Tls, AClientWithoutTlsIsToldSo) {
  const auto plain = NewClient(nullptr);
  plain->Connect(server->port(), milliseconds(300));
  ASSERT_TRUE(loop.RunUntil([&] { return plain->failed.size() == 1; }));
  EXPECT_THAT(plain->failed[0].message(), HasSubstr("the peer speaks TLS and this side does not"));
  EXPECT_GE(server->counters().refused_tls, 1u);
  EXPECT_THAT(server->refused.at(0).status.message(), HasSubstr("does not speak TLS"));
}

TEST_F(Tls, AClientWithTlsIsToldThatTheServerSpeaksNone) {
  ServerOptions options = RecordingServer::DefaultOptions();
  options.tls = nullptr;
  RecordingServer plain(loop, secret, options);
  const auto client = NewClient(context);
  client->Connect(plain.port(), milliseconds(300));
  ASSERT_TRUE(loop.RunUntil([&] { return client->failed.size() == 1; }));
  EXPECT_THAT(client->failed[0].message(), AnyOf(HasSubstr("not speak TLS"), HasSubstr("reset")));
  EXPECT_GE(plain.counters().refused_magic, 1u);
  EXPECT_THAT(plain.refused.at(0).status.message(), HasSubstr("the peer speaks TLS and this side does not"));
}

TEST_F(Tls, AClientRetriesWhileAnotherProgramHasThePort) {
  const UniqueFd listening = ListenTcp("127.0.0.1", 0).value();
  const auto client = NewClient(context);
  client->Connect(LocalAddress(listening.get()).port(), milliseconds(300));
  int visits = 0;
  ASSERT_TRUE(loop.RunUntil([&] {
    const UniqueFd visitor = AcceptTcp(listening.get());
    if (visitor.valid() && ++visits) (void)::send(visitor.get(), "SSH-2.0-OpenSSH\r\n", 17, MSG_NOSIGNAL);
    return client->failed.size() == 1;
  }));
  EXPECT_GT(visits, 1);
  EXPECT_EQ(client->failed[0].code(), StatusCode::kDeadlineExceeded);
}

TEST_F(Tls, TheSecretIsStillAskedFor) {
  const auto liar = NewClient(context, NewSecret());
  liar->Connect(server->port());
  ASSERT_TRUE(loop.RunUntil([&] { return liar->failed.size() == 1; }));
  EXPECT_THAT(liar->failed[0].message(), HasSubstr("secret"));
  ASSERT_TRUE(loop.RunUntil([&] { return server->counters().refused_secret == 1; }));
  EXPECT_EQ(server->counters().refused_tls, 0u);
}

TEST_F(Tls, WhoSaysNothingOrStopsHalfwayIsClosedAtTheDeadline) {
  Begin(milliseconds(200));
  const auto half = TlsChannel::Create(*context, TlsChannel::Side::kClient).value();
  half->Receive({});
  RawPeer silent(server->port()), halfway(server->port()), shaken(server->port());
  halfway.Write(half->output().substr(0, half->output().size() / 2));
  // The third does all of TLS, and nothing of what comes after it.
  const auto whole = TlsChannel::Create(*context, TlsChannel::Side::kClient).value();
  whole->Receive({});
  size_t used = 0;
  const auto talk = [&] {
    const std::string& got = shaken.Read();
    if (got.size() > used) whole->Receive(std::string_view(got).substr(used));
    used = got.size();
    if (!whole->output().empty() && shaken.Write(whole->output())) whole->Sent(whole->output().size());
  };
  ASSERT_TRUE(loop.RunUntil([&] {
    talk();
    return server->refused.size() == 3;
  }));
  EXPECT_TRUE(whole->open());
  EXPECT_EQ(server->counters().refused_timeout, 3u);
  EXPECT_TRUE(silent.ended());
  EXPECT_TRUE(halfway.ended());
  EXPECT_TRUE(shaken.ended());
}

TEST_F(Tls, GarbageInTheMiddleEndsOnlyThatConnection) {
  const auto other = NewClient(context);
  other->Connect(server->port());
  ASSERT_TRUE(loop.RunUntil([&] { return other->opened.size() == 1 && server->opened.size() == 2; }));
  // From within the process: the client's own socket is the newest one to the server's port.
  int fd = -1;
  for (int candidate = 0; candidate < 1024; ++candidate) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(candidate, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.sin_family == AF_INET &&
        ntohs(peer.sin_port) == server->port())
      fd = candidate;
  }
  ASSERT_GE(fd, 0);
  ASSERT_GT(::send(fd, "this is no record", 17, MSG_NOSIGNAL), 0);
  ASSERT_TRUE(loop.RunUntil([&] { return server->closed.size() == 1; }));
  EXPECT_EQ(server->counters().closed_frame, 1u);
}

}  // namespace
}  // namespace kintsugi::net
