#include "runtime/net/handshake_parts.h"

#include <algorithm>

namespace kintsugi::net {
namespace {

constexpr std::string_view kClientLabel = "kintsugi handshake: the client proves itself to the server";
constexpr std::string_view kServerLabel = "kintsugi handshake: the server proves itself to the client";

// The first byte of a TLS record, RFC 8446 section 5.1.
constexpr char kTlsAlert = 21;
constexpr char kTlsHandshake = 22;

// Each field is preceded by its length, so no two different transcripts have the same bytes.
void AppendField(std::string* out, std::string_view field) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<char>(field.size() >> shift));
  out->append(field);
}

Mac Prove(const Secret& secret, std::string_view label, const Transcript& transcript) {
  std::string text;
  AppendField(&text, label);
  AppendField(&text, EncodePreamble(transcript.version));
  for (const std::string* field : {&transcript.job, &transcript.client_role, &transcript.server_role,
                                   &transcript.client_nonce, &transcript.server_nonce, &transcript.session_id}) {
    AppendField(&text, *field);
  }
  return secret.Sign(text);
}

HandshakeReader::Event Failed(CloseReason reason, StatusCode code, std::string message) {
  HandshakeReader::Event event;
  event.kind = HandshakeReader::Event::Kind::kFailure;
  event.failure = HandshakeFailure{reason, Status(code, std::move(message))};
  return event;
}

}  // namespace

std::string EncodePreamble(uint16_t version) {
  std::string out(kMagic);
  out.push_back(static_cast<char>(version >> 8));
  out.push_back(static_cast<char>(version));
  return out;
}

HandshakeReader::Event HandshakeReader::ReadPreamble(std::string_view* bytes) {
  const size_t taken = std::min(kPreambleBytes - preamble_.size(), bytes->size());
  preamble_.append(bytes->substr(0, taken));
  bytes->remove_prefix(taken);
  const size_t comparable = std::min(preamble_.size(), kMagic.size());
  if (preamble_.front() == kTlsHandshake || preamble_.front() == kTlsAlert) {
    return Failed(CloseReason::kMagic, StatusCode::kDataLoss,
                  "handshake: the peer speaks TLS and this side does not: start all processes of a run with the same "
                  "--tls options");
  }
  if (preamble_.compare(0, comparable, kMagic, 0, comparable) != 0) {
    return Failed(
        CloseReason::kMagic, StatusCode::kDataLoss,
        "handshake: the first bytes are not Kintsugi's: another program uses this port, or the port is wrong");
  }
  if (preamble_.size() < kPreambleBytes) return {};
  const auto version =
      static_cast<uint16_t>(static_cast<unsigned char>(preamble_[8]) << 8 | static_cast<unsigned char>(preamble_[9]));
  if (version != version_) {
    return Failed(CloseReason::kVersion, StatusCode::kInvalidArgument,
                  "handshake: the peer speaks protocol version " + std::to_string(version) + ", this side version " +
                      std::to_string(version_) + ": install the same release of Kintsugi on both");
  }
  Event event;
  event.kind = Event::Kind::kPreamble;
  return event;
}

HandshakeReader::Event HandshakeReader::Next(std::string_view* bytes) {
  if (preamble_.size() < kPreambleBytes) return ReadPreamble(bytes);
  const FrameEvent frame = frames_.Next(bytes);
  switch (frame.kind) {
    case FrameEvent::Kind::kNeedMore: return {};
    case FrameEvent::Kind::kEmpty:
      return Failed(CloseReason::kFrameEmpty, StatusCode::kDataLoss, "handshake: a frame of length zero");
    case FrameEvent::Kind::kOversized:
      return Failed(CloseReason::kFrameOversized, StatusCode::kDataLoss,
                    "handshake: a frame of " + std::to_string(frame.announced_bytes) + " bytes, limit " +
                        std::to_string(kHandshakeFrameLimitBytes));
    case FrameEvent::Kind::kFrame: break;
  }
  Event event;
  if (!event.message.ParseFromArray(frame.payload.data(), static_cast<int>(frame.payload.size()))) {
    return Failed(CloseReason::kMessage, StatusCode::kDataLoss, "handshake: a message that does not parse");
  }
  event.kind = Event::Kind::kMessage;
  return event;
}

HandshakeFailure HandshakeReader::AtEndOfStream() const {
  if (frames_.mid_frame() || (!preamble_.empty() && preamble_.size() < kPreambleBytes)) {
    return {CloseReason::kFrameTruncated,
            Status(StatusCode::kDataLoss, "handshake: the stream ended within a message")};
  }
  return {
      CloseReason::kPeer,
      Status(StatusCode::kCommFailure,
             "handshake: the peer closed the connection before the handshake was complete: it may have ended, be at "
             "its limit of connections, or not be Kintsugi")};
}

Mac ProofOfClient(const Secret& secret, const Transcript& transcript) {
  return Prove(secret, kClientLabel, transcript);
}
Mac ProofOfServer(const Secret& secret, const Transcript& transcript) {
  return Prove(secret, kServerLabel, transcript);
}

void AppendMessage(std::string* out, const wire::HandshakeMessage& message) {
  AppendFrame(out, message.SerializeAsString());
}

HandshakeFailure OutOfTurn() {
  return {CloseReason::kMessage,
          Status(StatusCode::kDataLoss, "handshake: a message that is malformed or out of turn")};
}

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::string ToHex(std::string_view bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (unsigned char byte : bytes) {
    out.push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 15]);
  }
  return out;
}

Status ValidateIdentity(const Identity& identity) {
  const auto require = [](std::string_view what, const std::string& name) {
    if (IsName(name)) return Status::Ok();
    return Status(StatusCode::kInvalidArgument,
                  "the " + std::string(what) +
                      "'s name must be 1 to 128 printable ASCII characters without blanks, not " +
                      std::to_string(name.size()) + " characters of another kind");
  };
  KINTSUGI_RETURN_IF_ERROR(require("job", identity.job));
  return require("role", identity.role);
}

}  // namespace kintsugi::net
