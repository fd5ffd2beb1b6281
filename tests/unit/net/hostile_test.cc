// Strangers and broken peers on the port. Every test has a running connection beside it, which must notice nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include "runtime/base/random.h"
#include "tests/unit/net/net_harness.h"

namespace kintsugi::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Hostile : public ::testing::Test {
 protected:
  void Begin(ServerOptions options = RecordingServer::DefaultOptions()) {
    server = std::make_unique<RecordingServer>(loop, secret, std::move(options));
    witness = std::make_unique<RecordingClient>(loop, secret);
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

  // The stranger says this; the server must end the connection for this reason.
  void ExpectRefused(std::string_view bytes, CloseReason reason, bool end_writing = false) {
    const size_t before = server->refused.size();
    RawPeer stranger(server->port());
    stranger.Write(bytes);
    if (end_writing) stranger.EndWriting();
    ASSERT_TRUE(loop.RunUntil([&] { return stranger.ended() && (stranger.Close(), true); }));
    ASSERT_TRUE(loop.RunUntil([&] { return server->refused.size() == before + 1; }));
    EXPECT_EQ(CloseReasonName(server->refused.back().reason), CloseReasonName(reason));
    EXPECT_THAT(server->refused.back().status.message(), ::testing::HasSubstr("peer 127.0.0.1:"));
  }

  // An authenticated peer says this; the server must end that connection.
  void ExpectClosed(std::string_view bytes, bool end_writing = false) {
    const size_t before = server->closed.size();
    RawPeer peer(server->port());
    Authenticate(loop, peer, secret);
    peer.Write(bytes);
    if (end_writing) peer.EndWriting();
    ASSERT_TRUE(loop.RunUntil([&] { return server->closed.size() == before + 1; }));
    EXPECT_EQ(server->closed.back().code(), StatusCode::kDataLoss);
  }

  Loop loop;
  std::shared_ptr<const Secret> secret = NewSecret();
  std::unique_ptr<RecordingServer> server;
  std::unique_ptr<RecordingClient> witness;
};

TEST_F(Hostile, GarbageOnThePortIsRefusedAtOnce) {
  Begin();
  ExpectRefused("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", CloseReason::kMagic);
  ExpectRefused(std::string("\x16\x03\x01\x02\x00\x01\x00\x01", 8), CloseReason::kMagic);
  Random random(7);
  for (int i = 0; i < 50; ++i) {
    std::string blob(1 + random.Below(4000), '\0');
    for (char& byte : blob) byte = static_cast<char>(random.Next());
    if (blob[0] == 'K') blob[0] = 'k';
    ExpectRefused(blob, CloseReason::kMagic);
  }
  EXPECT_EQ(server->counters().refused_magic, 52u);
}

TEST_F(Hostile, BadFramesInTheHandshakeAreCountedByKind) {
  Begin();
  const std::string preamble = EncodePreamble(kProtocolVersion);
  ExpectRefused(preamble + std::string("\xff\xff\xff\xff", 4), CloseReason::kFrameOversized);
  ExpectRefused(preamble + std::string(4, '\0'), CloseReason::kFrameEmpty);
  ExpectRefused(preamble + Frame("not protobuf\xff"), CloseReason::kMessage);
  ExpectRefused(preamble + Frame("x").substr(0, 3), CloseReason::kFrameTruncated, true);
  ExpectRefused("KINTSUG", CloseReason::kFrameTruncated, true);
  ExpectRefused("", CloseReason::kPeer, true);
  EXPECT_EQ(server->counters().refused_frame, 5u);
  EXPECT_EQ(server->counters().frames_oversized, 1u);
  EXPECT_EQ(server->counters().frames_empty, 1u);
  EXPECT_EQ(server->counters().frames_truncated, 2u);
  EXPECT_EQ(server->counters().messages_malformed, 1u);
  EXPECT_EQ(server->counters().refused_gone, 1u);
}

TEST_F(Hostile, BadFramesOfAnAuthenticatedPeerEndOnlyThatPeer) {
  Begin();
  server->echo = false;
  std::string oversized;
  oversized.append("\0\x40\0\x01", 4);  // 4 MiB and one byte
  ExpectClosed(oversized);
  ExpectClosed(std::string(4, '\0'));
  ExpectClosed(Frame(std::string(1000, 'x')).substr(0, 500), true);
  ExpectClosed("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(server->counters().closed_frame, 4u);
  EXPECT_EQ(server->counters().frames_oversized, 2u);
  EXPECT_EQ(server->counters().frames_truncated, 1u);
  server->echo = true;
}

TEST_F(Hostile, AForeignVersionIsAnsweredWithOurs) {
  Begin();
  RawPeer stranger(server->port());
  stranger.Write(EncodePreamble(0x0203) + "whatever that version says next");
  ASSERT_TRUE(loop.RunUntil([&] { return stranger.ended(); }));
  EXPECT_EQ(stranger.Read(), EncodePreamble(kProtocolVersion));
  stranger.Close();
  ASSERT_TRUE(loop.RunUntil([&] { return server->counters().refused_version == 1; }));
  EXPECT_THAT(server->refused.back().status.message(), ::testing::HasSubstr("version 515, this side version 1"));
}

TEST_F(Hostile, ARefusalArrivesAlthoughTheStrangerGoesOnTalking) {
  Begin();
  RawPeer stranger(server->port());
  stranger.Write(EncodePreamble(9));
  ASSERT_TRUE(loop.RunUntil([&] { return stranger.Read().size() == kPreambleBytes; }));
  for (int i = 0; i < 20; ++i) {
    stranger.Write(std::string(1000, 'x'));
    loop.RunFor(milliseconds(1));
  }
  EXPECT_EQ(stranger.Read(), EncodePreamble(kProtocolVersion));
  EXPECT_TRUE(
      loop.RunUntil([&] { return server->counters().refused_version == 1; }));  // it cannot hold the place for ever
}

TEST_F(Hostile, ASlowHandshakeEndsAtItsDeadline) {
  ServerOptions options = RecordingServer::DefaultOptions();
  options.limits.handshake_deadline = milliseconds(200);
  Begin(options);
  RawPeer silent(server->port()), slow(server->port());
  slow.Write("K");
  size_t sent = 1;
  ASSERT_TRUE(loop.RunUntil([&] {
    if (sent < kMagic.size()) slow.Write(kMagic.substr(sent++, 1));
    loop.RunFor(milliseconds(20));
    return server->refused.size() == 2;
  }));
  EXPECT_EQ(server->counters().refused_timeout, 2u);
  EXPECT_TRUE(silent.ended());
  EXPECT_TRUE(slow.ended());
  EXPECT_EQ(server->refused[0].status.code(), StatusCode::kDeadlineExceeded);
}

TEST_F(Hostile, SilentConnectionsDoNotKeepOthersOut) {
  ServerOptions options = RecordingServer::DefaultOptions();
  options.unauthenticated_max = 8;
  options.limits.handshake_deadline = seconds(3600);
  options.handshake_deadline_when_full = milliseconds(50);
  Begin(options);
  std::vector<std::unique_ptr<RawPeer>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<RawPeer>(server->port()));
  RecordingClient late(loop, secret);
  late.Connect(server->port());
  ASSERT_TRUE(loop.RunUntil([&] {
    EXPECT_LE(server->server().unauthenticated_connections(), 8u);
    return late.opened.size() == 1;
  }));
  EXPECT_GE(server->counters().refused_limit, 13u);
  EXPECT_EQ(server->counters().refused_timeout, 0u);
}

// Lowers the limit of open files for a while.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t descriptors) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit few = before_;
    few.rlim_cur = descriptors;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

TEST_F(Hostile, AThousandSilentConnectionsLeaveDescriptorsForOthers) {
  std::unique_ptr<RawPeer> silent[1000];
  {
    const FewDescriptors few(256);
    Begin();
  }
  EXPECT_EQ(server->server().unauthenticated_max(), 64u);
  EXPECT_EQ(server->server().connections_max(), 192u);
  for (auto& peer : silent) peer = std::make_unique<RawPeer>(server->port());
  RecordingClient late(loop, secret);
  late.Connect(server->port());
  size_t most = 0;
  ASSERT_TRUE(loop.RunUntil([&] {
    most = std::max(most, server->server().unauthenticated_connections());
    return late.opened.size() == 1;
  }));
  EXPECT_EQ(most, 64u);
  EXPECT_GT(server->counters().refused_limit, 800u);
}

// What a stranger can make the server keep: a frame of the handshake's limit, of which the last byte never comes.
TEST_F(Hostile, HalfHandshakesKeepLittleMemory) {
  Begin();
  std::string half = EncodePreamble(kProtocolVersion);
  half += Frame(std::string(kHandshakeFrameLimitBytes, 'x'));
  half.pop_back();
  constexpr size_t kStrangers = 400;
  const size_t before = ::mallinfo2().uordblks;
  std::vector<std::unique_ptr<RawPeer>> strangers;
  for (size_t i = 0; i < kStrangers; ++i) {
    strangers.push_back(std::make_unique<RawPeer>(server->port()));
    strangers.back()->Write(half);
  }
  ASSERT_TRUE(loop.RunUntil([&] {
    size_t heard = 0;
    for (const auto& stranger : strangers) heard += stranger->Read().size() == kPreambleBytes;
    return heard == kStrangers;
  }));
  EXPECT_EQ(server->server().unauthenticated_connections(), kStrangers);
  EXPECT_LT((::mallinfo2().uordblks - before) / kStrangers, 8192u);
}

TEST_F(Hostile, ThousandsOfStrangersComeAndGo) {
  Begin();
  Random random(11);
  const std::string hello = EncodePreamble(kProtocolVersion);
  for (int i = 0; i < 1000; ++i) {
    RawPeer stranger(server->port());
    stranger.Write(hello.substr(0, random.Below(hello.size() + 1)));
    if (random.Chance(0.5)) stranger.Reset();
    if (i % 50 == 0) loop.RunFor(milliseconds(1));
  }
  EXPECT_TRUE(loop.RunUntil([&] { return server->counters().accepted == 1001 && server->refused.size() == 1000; }));
  EXPECT_EQ(server->server().unauthenticated_connections(), 0u);
  EXPECT_EQ(server->server().open_connections(), 1u);
}

TEST_F(Hostile, AReplayedHandshakeIsRefused) {
  Begin();
  // What a real client sends, recorded on the wire by playing it to a server with the same secret and other nonces.
  const auto client = MakeClientHandshake({"job", "agent"}, secret, Nonce{});
  const auto other = MakeServerHandshake({"job", "controller"}, secret, Nonce{}, SessionId{});
  std::string recorded = client->Begin();
  std::string_view bytes = recorded;
  const std::string challenge = other->Consume(&bytes).send;
  bytes = challenge;
  recorded += client->Consume(&bytes).send;
  ExpectRefused(recorded, CloseReason::kSecret, true);
}

TEST_F(Hostile, AReflectingStrangerIsRefused) {
  Begin();
  const size_t before = server->refused.size();
  RawPeer mirror(server->port());  // says the magic, then everything that the server says
  mirror.Write(EncodePreamble(kProtocolVersion));
  size_t reflected = kPreambleBytes;
  ASSERT_TRUE(loop.RunUntil([&] {
    const std::string& heard = mirror.Read();
    if (heard.size() > reflected) {
      mirror.Write(std::string_view(heard).substr(reflected));
      reflected = heard.size();
    }
    if (heard.size() == kPreambleBytes && reflected == kPreambleBytes) {
      mirror.Write(Frame(heard));  // the server waits for a hello: give it its own words
      ++reflected;
    }
    return server->refused.size() == before + 1;
  }));
  EXPECT_EQ(server->refused.back().reason, CloseReason::kMessage);
}

TEST(HostileServer, DoesNotFoolAClientThatAsksForProof) {
  Loop loop;
  RecordingServer impostor(loop, NewSecret());
  RecordingClient client(loop, NewSecret());
  client.Connect(impostor.port());
  ASSERT_TRUE(loop.RunUntil([&] { return client.failed.size() == 1; }));
  EXPECT_EQ(client.failed[0].code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(client.opened.empty());
  EXPECT_TRUE(impostor.opened.empty());
}

}  // namespace
}  // namespace kintsugi::net
