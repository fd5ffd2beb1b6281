#include "tests/fuzz/known_handshake.h"

#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/unique_fd.h"
#include "tests/fuzz/fuzz_target.h"

namespace kintsugi::fuzz {
namespace {

std::shared_ptr<const net::Secret> ReadKnownSecret() {
  int ends[2];
  KINTSUGI_CHECK(::pipe(ends) == 0, "pipe");
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const std::string bytes(net::kSecretBytes, 's');
  KINTSUGI_CHECK(::write(writing.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "write");
  writing.Reset();
  return net::Secret::FromFd(reading.get()).value();
}

const std::shared_ptr<const net::Secret>& KnownSecret() {
  static const std::shared_ptr<const net::Secret> secret = ReadKnownSecret();
  return secret;
}

}  // namespace

std::unique_ptr<net::Handshake> KnownClient() {
  return net::MakeClientHandshake({"job", "agent"}, KnownSecret(), net::Nonce{1});
}

std::unique_ptr<net::Handshake> KnownServer() {
  return net::MakeServerHandshake({"job", "controller"}, KnownSecret(), net::Nonce{2}, net::SessionId{3});
}

Conversation Converse() {
  const auto client = KnownClient(), server = KnownServer();
  Conversation said;
  std::string to_server = client->Begin();
  for (bool done = false; !done;) {
    said.from_client += to_server;
    std::string_view bytes = to_server;
    const std::string to_client = server->Consume(&bytes).send;
    said.from_server += to_client;
    bytes = to_client;
    net::HandshakeOutput step = client->Consume(&bytes);
    KINTSUGI_CHECK(!step.failure, "two honest sides do not agree");
    to_server = step.send;
    done = step.done;
  }
  return said;
}

bool Convinces(net::Handshake& handshake, uint8_t how, std::string_view stream, std::string_view role,
               std::string_view proof) {
  bool done = false, failed = false;
  size_t answered = 0;
  InPieces(how, stream, [&](std::string_view bytes) {
    const size_t before = bytes.size();
    const net::HandshakeOutput step = handshake.Consume(&bytes);
    KINTSUGI_CHECK(bytes.size() <= before, "bytes came back");
    KINTSUGI_CHECK(step.done || step.failure || bytes.empty(), "bytes were left although more are needed");
    answered += step.send.size();
    done = step.done;
    failed = step.failure.has_value();
    KINTSUGI_CHECK(!failed || !step.failure->status.ok(), "a failure without an error");
    KINTSUGI_CHECK(!(done && failed), "done and failed");
    return !done && !failed;
  });
  KINTSUGI_CHECK(answered <= 4 * net::kHandshakeFrameLimitBytes, "a long answer to a stranger");
  if (!done && !failed) KINTSUGI_CHECK(!handshake.AtEndOfStream().status.ok(), "half a handshake is no error");
  if (!done) return false;
  KINTSUGI_CHECK(handshake.peer().role == role && handshake.peer().job == "job",
                 "the peer is not whom the proof is of");
  KINTSUGI_CHECK(stream.find(proof) != std::string_view::npos, "convinced without the proof");
  return true;
}

}  // namespace kintsugi::fuzz
