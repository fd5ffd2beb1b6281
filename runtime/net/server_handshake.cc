#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/net/handshake_parts.h"

namespace kintsugi::net {
namespace {

class ServerHandshake final : public Handshake {
 public:
  ServerHandshake(Identity self, const std::shared_ptr<const Secret>& secret, const Nonce& nonce,
                  const SessionId& session_id)
      : self_(std::move(self)), known_(secret->Known()), reader_(self_.version) {
    transcript_.version = self_.version;
    transcript_.job = self_.job;
    transcript_.server_role = self_.role;
    transcript_.server_nonce = AsString(nonce);
    transcript_.session_id = AsString(session_id);
  }

  std::string Begin() override { return {}; }
  HandshakeOutput Consume(std::string_view* bytes) override;
  HandshakeFailure AtEndOfStream() const override { return reader_.AtEndOfStream(); }
  const PeerIdentity& peer() const override {
    KINTSUGI_CHECK(!peer_.session_id.empty(), "a peer is known when the handshake is done");
    return peer_;
  }

 private:
  enum class State { kHello, kProof, kEnded };
  void OnMessage(const wire::HandshakeMessage& message, HandshakeOutput* step);
  void OnHello(const wire::ClientHello& hello, HandshakeOutput* step);
  void OnProof(const wire::ClientProof& proof, HandshakeOutput* step);
  static void Refuse(wire::Refusal::Reason wire_reason, HandshakeFailure failure, HandshakeOutput* step);

  const Identity self_;
  const std::vector<std::shared_ptr<const Secret>> known_;
  HandshakeReader reader_;
  Transcript transcript_;
  PeerIdentity peer_;
  State state_ = State::kHello;
};

HandshakeOutput ServerHandshake::Consume(std::string_view* bytes) {
  KINTSUGI_CHECK(state_ != State::kEnded, "bytes for a handshake that has ended");
  HandshakeOutput step;
  while (state_ != State::kEnded) {
    HandshakeReader::Event event = reader_.Next(bytes);
    switch (event.kind) {
      case HandshakeReader::Event::Kind::kNeedMore: return step;
      case HandshakeReader::Event::Kind::kPreamble: step.send += EncodePreamble(self_.version); break;
      case HandshakeReader::Event::Kind::kMessage: OnMessage(event.message, &step); break;
      case HandshakeReader::Event::Kind::kFailure:
        if (event.failure->reason == CloseReason::kVersion) step.send += EncodePreamble(self_.version);
        step.failure = std::move(event.failure);
        break;
    }
    if (step.done || step.failure) state_ = State::kEnded;
  }
  return step;
}

void ServerHandshake::OnMessage(const wire::HandshakeMessage& message, HandshakeOutput* step) {
  if (state_ == State::kHello && message.has_client_hello()) return OnHello(message.client_hello(), step);
  if (state_ == State::kProof && message.has_client_proof()) return OnProof(message.client_proof(), step);
  step->failure = OutOfTurn();
}

void ServerHandshake::OnHello(const wire::ClientHello& hello, HandshakeOutput* step) {
  if (!IsName(hello.job()) || !IsName(hello.role()) || hello.nonce().size() != kNonceBytes) {
    step->failure = OutOfTurn();
    return;
  }
  if (hello.job() != self_.job) {
    return Refuse(
        wire::Refusal::JOB,
        {CloseReason::kJob, Status(StatusCode::kInvalidArgument, "handshake: the peer belongs to job " + hello.job() +
                                                                     ", this side to job " + self_.job)},
        step);
  }
  transcript_.client_role = hello.role();
  transcript_.client_nonce = hello.nonce();
  wire::HandshakeMessage answer;
  auto* challenge = answer.mutable_server_challenge();
  challenge->set_role(self_.role);
  challenge->set_nonce(transcript_.server_nonce);
  challenge->set_session_id(transcript_.session_id);
  AppendMessage(&step->send, answer);
  state_ = State::kProof;
}

void ServerHandshake::OnProof(const wire::ClientProof& proof, HandshakeOutput* step) {
  const auto proven = std::find_if(known_.begin(), known_.end(), [&](const auto& secret) {
    return SameMac(ProofOfClient(*secret, transcript_), proof.mac());
  });
  if (proven == known_.end()) {
    return Refuse(wire::Refusal::SECRET,
                  {CloseReason::kSecret,
                   Status(StatusCode::kPermissionDenied, "handshake: the peer (role " + transcript_.client_role +
                                                             ") does not know the secret of job " + self_.job)},
                  step);
  }
  wire::HandshakeMessage answer;
  answer.mutable_server_proof()->set_mac(AsString(ProofOfServer(**proven, transcript_)));
  AppendMessage(&step->send, answer);
  peer_ = {.job = self_.job, .role = transcript_.client_role, .session_id = ToHex(transcript_.session_id)};
  step->done = true;
}

void ServerHandshake::Refuse(wire::Refusal::Reason wire_reason, HandshakeFailure failure, HandshakeOutput* step) {
  wire::HandshakeMessage answer;
  answer.mutable_refusal()->set_reason(wire_reason);
  AppendMessage(&step->send, answer);
  step->failure = std::move(failure);
}

}  // namespace

std::unique_ptr<Handshake> MakeServerHandshake(Identity self, std::shared_ptr<const Secret> secret, const Nonce& nonce,
                                               const SessionId& session_id) {
  KINTSUGI_CHECK(ValidateIdentity(self).ok(), "this side's own identity is valid");
  return std::make_unique<ServerHandshake>(std::move(self), secret, nonce, session_id);
}

}  // namespace kintsugi::net
