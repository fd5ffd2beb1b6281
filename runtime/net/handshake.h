// The handshake: what passes between two sides before the first frame. It tells which protocol version, job and role
// each has, and proves to each that the other knows the job's secret.
//
//   client -> server   magic, version | ClientHello: job, role, nonce
//   server -> client   magic, version | ServerChallenge: role, nonce, session id
//   client -> server   ClientProof: HMAC(secret, client's label, transcript)
//   server -> client   ServerProof: HMAC(secret, server's label, transcript), and frames may follow at once
//
// The magic and the version (ten bytes, never framed, the same in every version to come) go both ways before anything
// else, so sides of different versions can both say which two versions met. The transcript is version, job, both roles,
// both nonces and the session id, each with its length. Different labels make a proof useless in the other direction,
// fresh nonces make a recorded one useless later. The server proves itself second: a client that does not know the
// secret gets nothing from it that depends on the secret. Later frames carry no MAC: README.md says what that leaves
// open.
//
// Pure: bytes, nonces and the secret go in; bytes and an outcome come out. No socket, clock or random numbers.
// Errors: HandshakeFailure. Messages name versions and remedies; the driver adds the peer's address.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/net/close_reason.h"
#include "runtime/net/secret.h"

namespace kintsugi::net {

inline constexpr std::string_view kMagic = "KINTSUGI";
inline constexpr uint16_t kProtocolVersion = 1;
inline constexpr size_t kPreambleBytes = 10;
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kSessionIdBytes = 16;
inline constexpr size_t kNameBytesMax = 128;
inline constexpr size_t kHandshakeFrameLimitBytes = 1024;

// Who speaks, as Identity::role.
inline constexpr std::string_view kControllerRole = "controller";
inline constexpr std::string_view kLauncherRole = "launcher";
inline constexpr std::string_view kAgentRole = "agent";

using Nonce = std::array<uint8_t, kNonceBytes>;
using SessionId = std::array<uint8_t, kSessionIdBytes>;

// What this side says of itself. Names: 1 to 128 printable ASCII characters without blanks.
struct Identity {
  std::string job;
  std::string role;                     // "controller", "launcher", "agent", ...
  uint16_t version = kProtocolVersion;  // differs in tests only
};

// kInvalidArgument names the field that is not a name.
Status ValidateIdentity(const Identity& identity);

struct PeerIdentity {
  std::string job;
  std::string role;
  std::string session_id;  // 32 hex digits; the same on both sides
};

struct HandshakeFailure {
  CloseReason reason;
  Status status;
};

struct HandshakeOutput {
  std::string send;  // to be written in any case, also beside a failure: it tells the peer why
  bool done = false;
  std::optional<HandshakeFailure> failure;
};

class Handshake {
 public:
  virtual ~Handshake() = default;

  // What to write when the connection opens (the server waits for the client: nothing).
  virtual std::string Begin() = 0;

  // Takes bytes from the front of `*bytes`; after `done`, what it left there is the beginning of the frames.
  // REQUIRES: neither done nor failed before.
  virtual HandshakeOutput Consume(std::string_view* bytes) = 0;

  // What it means that the peer's stream ended here.
  virtual HandshakeFailure AtEndOfStream() const = 0;

  // REQUIRES: done.
  virtual const PeerIdentity& peer() const = 0;
};

// REQUIRES: ValidateIdentity(self).ok(); a nonce and session id are used for one connection only.
std::unique_ptr<Handshake> MakeClientHandshake(Identity self, std::shared_ptr<const Secret> secret, const Nonce& nonce);
std::unique_ptr<Handshake> MakeServerHandshake(Identity self, std::shared_ptr<const Secret> secret, const Nonce& nonce,
                                               const SessionId& session_id);

// Magic and version, as they stand on the wire.
std::string EncodePreamble(uint16_t version);

}  // namespace kintsugi::net
