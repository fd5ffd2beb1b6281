// TlsChannel without sockets: whatever way the wire cuts the bytes, what was said is what is heard.
#include "runtime/net/tls_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "runtime/base/random.h"
#include "tests/unit/net/certificates.h"

namespace kintsugi::net {
namespace {

using ::testing::HasSubstr;

struct ChannelSide {
  std::unique_ptr<TlsChannel> channel;
  std::string said, heard;

  ChannelSide(const TlsContext& context, TlsChannel::Side side) : channel(TlsChannel::Create(context, side).value()) {
    channel->Receive({});
  }
  void Say(std::string text) {
    said += text;
    channel->Seal(text);
  }
  void Hear(std::string_view sealed) {
    channel->Receive(sealed);
    std::array<char, TlsChannel::kRecordBytes> record;
    for (std::string_view piece; !(piece = channel->Open(record)).empty();) heard += piece;
  }
};

// Moves up to `bytes` of what is in the output; what was moved.
std::string Move(ChannelSide& from, ChannelSide& to, size_t bytes = ~size_t{0}) {
  const std::string piece = from.channel->output().substr(0, bytes);
  from.channel->Sent(piece.size());
  to.Hear(piece);
  return piece;
}

class TlsChannels : public ::testing::Test {
 protected:
  void Shake() {
    for (int turn = 0; turn < 10; ++turn) {
      Move(client, server);
      Move(server, client);
    }
  }
  Authority authority;
  std::shared_ptr<const TlsContext> context = TlsContext::Load(authority.Issue("node")).value();
  ChannelSide client{*context, TlsChannel::Side::kClient};
  ChannelSide server{*context, TlsChannel::Side::kServer};
};

TEST_F(TlsChannels, CarryWhatWasSaidHoweverTheWireCutsIt) {
  Random random(11);
  for (int turn = 0; turn < 20000; ++turn) {
    ChannelSide& from = random.Below(2) ? client : server;
    ChannelSide& to = &from == &client ? server : client;
    if (from.channel->open() && random.Below(4) == 0)
      from.Say(
          std::string(1 + random.Below(random.Below(2) ? 100 : TlsChannel::kRecordBytes), static_cast<char>(turn)));
    Move(from, to, 1 + random.Below(2000));
    ASSERT_FALSE(from.channel->failed() || to.channel->failed()) << from.channel->failure().ToString();
  }
  while (!client.channel->output().empty() || !server.channel->output().empty()) Shake();
  EXPECT_GT(client.said.size(), 1000000u);
  EXPECT_EQ(server.heard, client.said);
  EXPECT_EQ(client.heard, server.said);
}

TEST_F(TlsChannels, HideWhatIsSaid) {
  Shake();
  client.Say("a word that must not be seen");
  EXPECT_THAT(Move(client, server), ::testing::Not(HasSubstr("must not be seen")));
  EXPECT_EQ(server.heard, client.said);
}

TEST_F(TlsChannels, OneChangedBitEndsThemAndNothingOfItIsHeard) {
  Random random(5);
  for (int turn = 0; turn < 50; ++turn) {
    ChannelSide one(*context, TlsChannel::Side::kClient), other(*context, TlsChannel::Side::kServer);
    for (int i = 0; i < 10; ++i) {
      Move(one, other);
      Move(other, one);
    }
    one.Say("first");
    Move(one, other);
    one.channel->Seal("second");
    std::string sealed = one.channel->output();
    sealed[5 + random.Below(sealed.size() - 5)] ^=
        static_cast<char>(1u << random.Below(8));  // behind the record's header
    other.Hear(sealed);
    EXPECT_TRUE(other.channel->failed());
    EXPECT_EQ(other.heard, "first");
  }
}

TEST_F(TlsChannels, SayFarewellOnce) {
  Shake();
  client.Say("last words");
  EXPECT_TRUE(client.channel->End());
  EXPECT_FALSE(client.channel->End());
  Move(client, server);
  EXPECT_EQ(server.heard, "last words");
  EXPECT_TRUE(server.channel->ended());
  EXPECT_FALSE(server.channel->failed());
}

TEST_F(TlsChannels, RefuseACertificateOfAnotherAuthority) {
  Authority stranger("another CA");
  const auto foreign = TlsContext::Load(stranger.Issue("intruder")).value();
  ChannelSide intruder(*foreign, TlsChannel::Side::kClient);
  for (int turn = 0; turn < 10; ++turn) {
    Move(intruder, server);
    Move(server, intruder);
  }
  EXPECT_TRUE(intruder.channel->failed());
  EXPECT_THAT(intruder.channel->failure().message(), HasSubstr("of one CA (--tls-ca)"));
  EXPECT_TRUE(server.channel->failed());
  EXPECT_THAT(server.channel->failure().message(), HasSubstr("refuses this side's certificate"));
}

TEST_F(TlsChannels, SayThatThePeerDoesNotSpeakTls) {
  for (const char* words : {"KINTSUGI\0\1 and a hello", "GET / HTTP/1.1\r\n\r\n"}) {
    ChannelSide listening(*context, TlsChannel::Side::kServer);
    listening.Hear(std::string(words, 18));
    EXPECT_TRUE(listening.channel->failed());
    EXPECT_THAT(listening.channel->failure().message(), HasSubstr("does not speak TLS"));
  }
}

TEST_F(TlsChannels, SurviveGarbageOfEveryKind) {
  Random random(3);
  Move(client, server);
  const std::string genuine = server.channel->output();
  for (int turn = 0; turn < 300; ++turn) {
    ChannelSide listening(*context, turn % 2 ? TlsChannel::Side::kServer : TlsChannel::Side::kClient);
    std::string bytes = genuine.substr(0, random.Below(genuine.size()));
    for (size_t i = random.Below(200); i > 0; --i) bytes.push_back(static_cast<char>(random.Next()));
    listening.Hear(bytes);
    EXPECT_TRUE(listening.heard.empty());
    EXPECT_FALSE(listening.channel->open());
  }
}

}  // namespace
}  // namespace kintsugi::net
