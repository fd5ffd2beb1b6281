// Mutation fuzzing with a fixed seed: the same hundred thousand inputs on every machine. Each input is a valid stream
// with a few random changes, cut into random pieces; the parsers must neither crash, nor hang, nor accept what they
// should not.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/base/random.h"
#include "runtime/net/frame.h"
#include "runtime/net/handshake.h"
#include "tests/unit/net/net_harness.h"
#include "tests/unit/net/obvious_frames.h"

namespace kintsugi::net {
namespace {

constexpr int kMutations = 100'000;

void MutateOnce(Random& random, std::string* bytes) {
  if (bytes->empty()) return bytes->push_back(static_cast<char>(random.Next()));
  const size_t at = random.Below(bytes->size());
  const size_t length = 1 + random.Below(std::min<size_t>(bytes->size() - at, 16));
  switch (random.Below(7)) {
    case 0: (*bytes)[at] ^= static_cast<char>(1u << random.Below(8)); break;
    case 1: (*bytes)[at] = static_cast<char>(random.Next()); break;
    case 2: bytes->erase(at, length); break;
    case 3: bytes->insert(at, bytes->substr(at, length)); break;
    case 4: bytes->insert(at, 1 + random.Below(8), static_cast<char>(random.Next())); break;
    case 5: bytes->resize(at); break;
    default: (*bytes)[at] = random.Chance(0.5) ? '\0' : '\xff'; break;
  }
}

std::string Mutate(Random& random, std::string bytes) {
  for (uint64_t times = random.Below(4); times-- > 0;) MutateOnce(random, &bytes);
  return bytes;
}

// Calls `take` with pieces of the stream, each in memory of its own, until it says stop.
template <typename Take>
void Feed(Random& random, const std::string& stream, Take take) {
  for (size_t at = 0; at < stream.size();) {
    const size_t size = std::min<size_t>(stream.size() - at, 1 + random.Below(random.Chance(0.5) ? 8 : 400));
    const std::vector<char> piece(stream.begin() + static_cast<ptrdiff_t>(at),
                                  stream.begin() + static_cast<ptrdiff_t>(at + size));
    if (!take(std::string_view(piece.data(), piece.size()))) return;
    at += size;
  }
}

TEST(FrameDecoderFuzz, AgreesWithTheObviousDecoder) {
  constexpr size_t kLimit = 600;
  Random random(20261121);
  for (int i = 0; i < kMutations; ++i) {
    std::string stream;
    for (uint64_t frames = random.Below(5); frames-- > 0;) {
      AppendFrame(&stream,
                  std::string(1 + random.Below(random.Chance(0.2) ? 600 : 20), static_cast<char>(random.Next())));
    }
    stream = Mutate(random, std::move(stream));
    const Decoded expected = DecodeObviously(stream, kLimit);
    const Decoded actual = DecodePieces(kLimit, [&](auto take) { Feed(random, stream, take); });
    ASSERT_EQ(actual.payloads, expected.payloads) << "mutation " << i;
    ASSERT_EQ(actual.end, expected.end) << "mutation " << i;
    ASSERT_EQ(actual.mid_frame, expected.mid_frame) << "mutation " << i;
  }
}

// A conversation with fixed nonces, recorded once, so that the unchanged recording passes.
struct Recording {
  std::shared_ptr<const Secret> secret = NewSecret();
  std::string from_client, from_server;

  std::unique_ptr<Handshake> Client() const { return MakeClientHandshake({"job", "agent"}, secret, Nonce{1}); }
  std::unique_ptr<Handshake> Server() const {
    return MakeServerHandshake({"job", "controller"}, secret, Nonce{2}, SessionId{3});
  }

  Recording() {
    const auto client = Client(), server = Server();
    std::string to_server = client->Begin();
    from_client = to_server;
    for (bool done = false; !done;) {
      std::string_view bytes = to_server;
      const std::string to_client = server->Consume(&bytes).send;
      from_server += to_client;
      bytes = to_client;
      HandshakeOutput step = client->Consume(&bytes);
      to_server = step.send;
      from_client += step.send;
      done = step.done;
    }
  }
};

// Plays the stream to the handshake. True if it was accepted; then it says what the recording says.
bool Accepts(Random& random, Handshake& handshake, const std::string& stream, std::string_view role) {
  bool done = false;
  size_t answered = 0;
  Feed(random, stream, [&](std::string_view bytes) {
    const size_t before = bytes.size();
    HandshakeOutput step = handshake.Consume(&bytes);
    EXPECT_LE(bytes.size(), before);
    answered += step.send.size();
    EXPECT_TRUE(!step.failure || !step.failure->status.ok());
    done = step.done;
    return !step.done && !step.failure;
  });
  EXPECT_LE(answered, 4 * kHandshakeFrameLimitBytes);
  if (!done) handshake.AtEndOfStream();
  EXPECT_TRUE(!done || handshake.peer().role == role);
  return done;
}

TEST(HandshakeFuzz, AServerAcceptsOnlyWhatTheSecretVouchesFor) {
  const Recording recording;
  Random random(1);
  int accepted = 0, changed_and_accepted = 0;
  for (int i = 0; i < kMutations; ++i) {
    const std::string stream = Mutate(random, recording.from_client);
    const bool same = stream.compare(0, recording.from_client.size(), recording.from_client) == 0;
    const bool done = Accepts(random, *recording.Server(), stream, "agent");
    if (same) {
      ASSERT_TRUE(done) << "mutation " << i;
    }
    accepted += done;
    changed_and_accepted += done && !same;
  }
  EXPECT_GT(accepted, 0);
  // What may differ is only protobuf's freedom to encode the same values in several ways, for instance an unknown
  // field.
  EXPECT_LT(changed_and_accepted, kMutations / 100);
}

TEST(HandshakeFuzz, AClientAcceptsOnlyWhatTheSecretVouchesFor) {
  const Recording recording;
  Random random(2);
  int changed_and_accepted = 0;
  for (int i = 0; i < kMutations; ++i) {
    const std::string stream = Mutate(random, recording.from_server);
    const bool same = stream.compare(0, recording.from_server.size(), recording.from_server) == 0;
    const auto client = recording.Client();
    client->Begin();
    const bool done = Accepts(random, *client, stream, "controller");
    if (same) {
      ASSERT_TRUE(done) << "mutation " << i;
    }
    changed_and_accepted += done && !same;
  }
  EXPECT_LT(changed_and_accepted, kMutations / 100);
}

}  // namespace
}  // namespace kintsugi::net
