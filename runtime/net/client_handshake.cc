#include <utility>

#include "runtime/base/check.h"
#include "runtime/net/handshake_parts.h"

namespace kintsugi::net {
namespace {

class ClientHandshake final : public Handshake {
 public:
  ClientHandshake(Identity self, const std::shared_ptr<const Secret>& secret, const Nonce& nonce)
      : self_(std::move(self)), secret_(secret->Known().front()), reader_(self_.version) {
    transcript_.version = self_.version;
    transcript_.job = self_.job;
    transcript_.client_role = self_.role;
    transcript_.client_nonce = AsString(nonce);
  }

  std::string Begin() override;
  HandshakeOutput Consume(std::string_view* bytes) override;
  HandshakeFailure AtEndOfStream() const override { return reader_.AtEndOfStream(); }
  const PeerIdentity& peer() const override {
    KINTSUGI_CHECK(!peer_.session_id.empty(), "a peer is known when the handshake is done");
    return peer_;
  }

 private:
  enum class State { kChallenge, kProof, kEnded };
  void OnMessage(const wire::HandshakeMessage& message, HandshakeOutput* step);
  void OnChallenge(const wire::ServerChallenge& challenge, HandshakeOutput* step);
  void OnProof(const wire::ServerProof& proof, HandshakeOutput* step);
  HandshakeFailure Refused(wire::Refusal::Reason reason) const;

  const Identity self_;
  const std::shared_ptr<const Secret> secret_;
  HandshakeReader reader_;
  Transcript transcript_;
  PeerIdentity peer_;
  State state_ = State::kChallenge;
};

std::string ClientHandshake::Begin() {
  std::string out = EncodePreamble(self_.version);
  wire::HandshakeMessage message;
  auto* hello = message.mutable_client_hello();
  hello->set_job(self_.job);
  hello->set_role(self_.role);
  hello->set_nonce(transcript_.client_nonce);
  AppendMessage(&out, message);
  return out;
}

HandshakeOutput ClientHandshake::Consume(std::string_view* bytes) {
  KINTSUGI_CHECK(state_ != State::kEnded, "bytes for a handshake that has ended");
  HandshakeOutput step;
  while (state_ != State::kEnded) {
    HandshakeReader::Event event = reader_.Next(bytes);
    switch (event.kind) {
      case HandshakeReader::Event::Kind::kNeedMore: return step;
      case HandshakeReader::Event::Kind::kPreamble: break;
      case HandshakeReader::Event::Kind::kMessage: OnMessage(event.message, &step); break;
      case HandshakeReader::Event::Kind::kFailure: step.failure = std::move(event.failure); break;
    }
    if (step.done || step.failure) state_ = State::kEnded;
  }
  return step;
}

void ClientHandshake::OnMessage(const wire::HandshakeMessage& message, HandshakeOutput* step) {
  if (message.has_refusal()) {
    step->failure = Refused(message.refusal().reason());
  } else if (state_ == State::kChallenge && message.has_server_challenge()) {
    OnChallenge(message.server_challenge(), step);
  } else if (state_ == State::kProof && message.has_server_proof()) {
    OnProof(message.server_proof(), step);
  } else {
    step->failure = OutOfTurn();
  }
}

void ClientHandshake::OnChallenge(const wire::ServerChallenge& challenge, HandshakeOutput* step) {
  if (!IsName(challenge.role()) || challenge.nonce().size() != kNonceBytes ||
      challenge.session_id().size() != kSessionIdBytes) {
    step->failure = OutOfTurn();
    return;
  }
  transcript_.server_role = challenge.role();
  transcript_.server_nonce = challenge.nonce();
  transcript_.session_id = challenge.session_id();
  wire::HandshakeMessage answer;
  answer.mutable_client_proof()->set_mac(AsString(ProofOfClient(*secret_, transcript_)));
  AppendMessage(&step->send, answer);
  state_ = State::kProof;
}

void ClientHandshake::OnProof(const wire::ServerProof& proof, HandshakeOutput* step) {
  if (!SameMac(ProofOfServer(*secret_, transcript_), proof.mac())) {
    step->failure = HandshakeFailure{
        CloseReason::kSecret,
        Status(StatusCode::kPermissionDenied, "handshake: the server (role " + transcript_.server_role +
                                                  ") could not prove that it knows the secret of job " + self_.job)};
    return;
  }
  peer_ = {.job = self_.job, .role = transcript_.server_role, .session_id = ToHex(transcript_.session_id)};
  step->done = true;
}

HandshakeFailure ClientHandshake::Refused(wire::Refusal::Reason reason) const {
  switch (reason) {
    case wire::Refusal::JOB:
      return {CloseReason::kJob,
              Status(StatusCode::kInvalidArgument, "handshake: the server does not serve job " + self_.job +
                                                       ": check its address and the job's name")};
    case wire::Refusal::SECRET:
      return {CloseReason::kSecret, Status(StatusCode::kPermissionDenied,
                                           "handshake: the server refused this side's secret for job " + self_.job +
                                               ": take the secret that the job's launcher handed down")};
    default: return OutOfTurn();
  }
}

}  // namespace

std::unique_ptr<Handshake> MakeClientHandshake(Identity self, std::shared_ptr<const Secret> secret,
                                               const Nonce& nonce) {
  KINTSUGI_CHECK(ValidateIdentity(self).ok(), "this side's own identity is valid");
  return std::make_unique<ClientHandshake>(std::move(self), secret, nonce);
}

}  // namespace kintsugi::net
