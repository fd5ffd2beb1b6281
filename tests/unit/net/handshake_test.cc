#include "runtime/net/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <utility>

#include "runtime/net/frame.h"
#include "runtime/net/handshake.pb.h"
#include "tests/unit/net/net_harness.h"

namespace kintsugi::net {
namespace {

using ::testing::HasSubstr;

Nonce NonceOf(uint8_t value) {
  Nonce nonce;
  nonce.fill(value);
  return nonce;
}

SessionId SessionOf(uint8_t value) {
  SessionId id;
  id.fill(value);
  return id;
}

struct Side {
  std::unique_ptr<Handshake> handshake;
  bool done = false;
  std::optional<HandshakeFailure> failure;
  std::string unread;

  // Returns what this side answers.
  std::string Take(std::string bytes) {
    std::string_view view = bytes;
    if (done || failure) return {};
    HandshakeOutput step = handshake->Consume(&view);
    done = step.done;
    failure = std::move(step.failure);
    unread.append(view);
    return step.send;
  }
  CloseReason reason() const { return failure ? failure->reason : CloseReason::kLocal; }
};

Side NewServer(std::shared_ptr<const Secret> secret, uint8_t nonce = 2, Identity self = {"job", "controller"}) {
  return {MakeServerHandshake(std::move(self), std::move(secret), NonceOf(nonce), SessionOf(3))};
}

Side NewClient(std::shared_ptr<const Secret> secret, Identity self = {"job", "agent"}, uint8_t nonce = 1) {
  return {MakeClientHandshake(std::move(self), std::move(secret), NonceOf(nonce))};
}

// Lets the two speak until neither has anything to say; returns all that the client has sent.
std::string Meet(Side& client, Side& server) {
  std::string to_server = client.handshake->Begin();
  std::string sent = to_server;
  while (!to_server.empty()) {
    const std::string to_client = server.Take(std::exchange(to_server, {}));
    if (!to_client.empty()) to_server = client.Take(to_client);
    sent += to_server;
  }
  return sent;
}

std::string Encode(const wire::HandshakeMessage& message) { return Frame(message.SerializeAsString()); }

wire::HandshakeMessage ParseMessage(std::string_view frame) {
  wire::HandshakeMessage message;
  EXPECT_TRUE(
      message.ParseFromArray(frame.data() + kFrameHeaderBytes, static_cast<int>(frame.size() - kFrameHeaderBytes)));
  return message;
}

TEST(Handshake, IntroducesTwoSidesThatKnowTheSecret) {
  const auto secret = NewSecret();
  Side client = NewClient(secret), server = NewServer(secret);
  Meet(client, server);
  ASSERT_TRUE(client.done);
  ASSERT_TRUE(server.done);
  EXPECT_EQ(client.handshake->peer().role, "controller");
  EXPECT_EQ(server.handshake->peer().role, "agent");
  EXPECT_EQ(server.handshake->peer().job, "job");
  EXPECT_EQ(client.handshake->peer().session_id, server.handshake->peer().session_id);
  EXPECT_EQ(client.handshake->peer().session_id.size(), 32u);
}

TEST(Handshake, WorksOneByteAtATimeAndLeavesTheFramesBehindIt) {
  const auto secret = NewSecret();
  Side client = NewClient(secret), server = NewServer(secret);
  std::string to_client, to_server = client.handshake->Begin();
  while (!client.done) {
    ASSERT_FALSE(client.failure || server.failure || (to_server.empty() && to_client.empty()));
    for (char byte : std::exchange(to_server, {})) to_client += server.Take(std::string(1, byte));
    if (server.done) to_client += "the first frame";
    const std::string bytes = std::exchange(to_client, {});
    if (server.done) {
      to_server += client.Take(bytes);
    } else {
      for (char byte : bytes) to_server += client.Take(std::string(1, byte));
    }
  }
  EXPECT_EQ(client.unread, "the first frame");
}

TEST(Handshake, RefusesAnotherSecretOnBothSidesAndSaysSo) {
  Side client = NewClient(NewSecret()), server = NewServer(NewSecret());
  Meet(client, server);
  EXPECT_EQ(server.reason(), CloseReason::kSecret);
  EXPECT_EQ(client.reason(), CloseReason::kSecret);
  EXPECT_EQ(client.failure->status.code(), StatusCode::kPermissionDenied);
}

// While one secret is changed for another: who has either is let in, and each side's proof is by what the other knows.
TEST(Handshake, TakesEitherOfTwoSecretsAndProvesItselfByTheFirst) {
  const std::string old_bytes(kSecretBytes, 'o'), new_bytes(kSecretBytes, 'n');
  const auto secret = [](const std::string& bytes) {
    std::FILE* file = std::tmpfile();
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fflush(file);
    Result<std::shared_ptr<Secret>> read = Secret::FromFile(fileno(file), bytes.size());
    std::fclose(file);
    return *read;
  };
  const auto meet = [](const std::shared_ptr<Secret>& ours, const std::shared_ptr<Secret>& theirs) {
    Side server = NewServer(ours), client = NewClient(theirs);
    Meet(client, server);
    EXPECT_EQ(server.done, client.done);
    return server.done;
  };
  const auto one = secret(old_bytes), first = secret(old_bytes + new_bytes), second = secret(new_bytes + old_bytes),
             last = secret(new_bytes);
  for (const auto& [ours, theirs] :
       {std::pair{one, first}, {first, one}, {first, second}, {second, first}, {second, last}, {last, second}})
    EXPECT_TRUE(meet(ours, theirs));
  EXPECT_FALSE(meet(one, last));
  EXPECT_FALSE(meet(last, one));
  EXPECT_FALSE(meet(one, second)) << "who knows one alone does not take a stranger's";
  EXPECT_TRUE(meet(second, one)) << "who knows both does";
  // What is taken over counts for the next handshake; one that has begun keeps what it began with.
  Side server = NewServer(one), client = NewClient(one);
  one->TakeFrom(*last);
  Meet(client, server);
  EXPECT_TRUE(server.done && client.done);
  EXPECT_TRUE(meet(one, last));
  EXPECT_EQ(secret(old_bytes + "x")->Known().size(), 1u);
}

TEST(Handshake, RefusesAnotherJob) {
  const auto secret = NewSecret();
  Side client = NewClient(secret, {"other", "agent"}), server = NewServer(secret);
  Meet(client, server);
  EXPECT_EQ(server.reason(), CloseReason::kJob);
  EXPECT_EQ(client.reason(), CloseReason::kJob);
}

TEST(Handshake, NamesBothVersionsOnBothSides) {
  const auto secret = NewSecret();
  Side client = NewClient(secret, {"job", "agent", 7}), server = NewServer(secret);
  Meet(client, server);
  for (Side* side : {&client, &server}) {
    ASSERT_EQ(side->reason(), CloseReason::kVersion);
    EXPECT_THAT(side->failure->status.message(), HasSubstr("version 7"));
    EXPECT_THAT(side->failure->status.message(), HasSubstr("version 1"));
  }
}

TEST(Handshake, RefusesForeignBytesAtTheFirstThatDiffers) {
  const auto secret = NewSecret();
  for (std::string bytes :
       {std::string("G"), std::string("KINTSUGO"), std::string("\x16\x03\x01"), std::string(1, '\0')}) {
    Side server = NewServer(secret);
    EXPECT_EQ(server.Take(bytes), "");
    EXPECT_EQ(server.reason(), CloseReason::kMagic) << bytes;
  }
}

TEST(Handshake, RefusesItsOwnProofReflected) {
  const auto secret = NewSecret();
  Side client = NewClient(secret), server = NewServer(secret);
  // A server without the secret relays the challenge of the real one, so that the transcript is right, and then gives
  // the client its own proof back.
  const std::string challenge = server.Take(client.handshake->Begin());
  const std::string proof = client.Take(challenge);
  wire::HandshakeMessage reflected;
  reflected.mutable_server_proof()->set_mac(ParseMessage(proof).client_proof().mac());
  client.Take(Encode(reflected));
  EXPECT_FALSE(client.done);
  EXPECT_EQ(client.reason(), CloseReason::kSecret);
}

TEST(Handshake, RefusesAServersProofUsedAsAClients) {
  const auto secret = NewSecret();
  Side client = NewClient(secret), server = NewServer(secret);
  const std::string server_proof = server.Take(client.Take(server.Take(client.handshake->Begin())));
  ASSERT_TRUE(server.done);
  // A second connection with equal nonces is the attacker's best case; the labels still keep the two proofs apart.
  Side again = NewServer(secret), same = NewClient(secret);
  again.Take(same.handshake->Begin());
  wire::HandshakeMessage reflected;
  reflected.mutable_client_proof()->set_mac(ParseMessage(server_proof).server_proof().mac());
  again.Take(Encode(reflected));
  EXPECT_FALSE(again.done);
  EXPECT_EQ(again.reason(), CloseReason::kSecret);
}

TEST(Handshake, RefusesARecordedOnePlayedAgain) {
  const auto secret = NewSecret();
  Side client = NewClient(secret), server = NewServer(secret);
  const std::string recorded = Meet(client, server);
  ASSERT_TRUE(server.done);
  Side control = NewServer(secret);  // the recording itself is sound: with the old nonce it passes
  control.Take(recorded);
  EXPECT_TRUE(control.done);
  Side fresh = NewServer(secret, 9);
  fresh.Take(recorded);
  EXPECT_FALSE(fresh.done);
  EXPECT_EQ(fresh.reason(), CloseReason::kSecret);
}

TEST(Handshake, BindsTheProofToTheRole) {
  const auto secret = NewSecret();
  Side client = NewClient(secret), server = NewServer(secret);
  // One on the path renames the client: the proof, which the client made for its own role, does not hold.
  wire::HandshakeMessage hello;
  hello.mutable_client_hello()->set_job("job");
  hello.mutable_client_hello()->set_role("controller");
  hello.mutable_client_hello()->set_nonce(std::string(kNonceBytes, '\1'));
  client.handshake->Begin();
  server.Take(client.Take(server.Take(EncodePreamble(kProtocolVersion) + Encode(hello))));
  EXPECT_EQ(server.reason(), CloseReason::kSecret);
}

TEST(Handshake, RefusesMessagesOutOfTurnOrMalformed) {
  const auto secret = NewSecret();
  const std::string preamble = EncodePreamble(kProtocolVersion);
  wire::HandshakeMessage proof, challenge, short_nonce, odd_name;
  proof.mutable_client_proof()->set_mac(std::string(kMacBytes, 'x'));
  challenge.mutable_server_challenge()->set_role("controller");
  for (auto* hello : {short_nonce.mutable_client_hello(), odd_name.mutable_client_hello()}) {
    hello->set_job("job");
    hello->set_role("agent");
    hello->set_nonce(std::string(kNonceBytes, 'n'));
  }
  short_nonce.mutable_client_hello()->set_nonce("n");
  odd_name.mutable_client_hello()->set_role("a\nrole");
  for (const std::string& bytes :
       {Encode(proof), Encode(challenge), Encode(short_nonce), Encode(odd_name), Frame("\xff\xff")}) {
    Side server = NewServer(secret);
    server.Take(preamble + bytes);
    EXPECT_EQ(server.reason(), CloseReason::kMessage);
  }
}

TEST(Handshake, BoundsItsFrames) {
  const std::string preamble = EncodePreamble(kProtocolVersion);
  Side oversized = NewServer(NewSecret()), empty = NewServer(NewSecret());
  oversized.Take(preamble + Frame(std::string(kHandshakeFrameLimitBytes + 1, 'x')));
  EXPECT_EQ(oversized.reason(), CloseReason::kFrameOversized);
  empty.Take(preamble + std::string(4, '\0'));
  EXPECT_EQ(empty.reason(), CloseReason::kFrameEmpty);
}

TEST(Handshake, TellsATruncatedStreamFromOneThatEnded) {
  Side server = NewServer(NewSecret());
  EXPECT_EQ(server.handshake->AtEndOfStream().reason, CloseReason::kPeer);
  server.Take("KINT");
  EXPECT_EQ(server.handshake->AtEndOfStream().reason, CloseReason::kFrameTruncated);
}

TEST(Identity, MustConsistOfNames) {
  EXPECT_TRUE(ValidateIdentity({"job-1", "agent"}).ok());
  for (const std::string& bad : {std::string(), std::string("a b"), std::string("a\n"), std::string(129, 'x')}) {
    EXPECT_EQ(ValidateIdentity({bad, "agent"}).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(ValidateIdentity({"job", bad}).code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kintsugi::net
