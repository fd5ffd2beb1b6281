// Pieces that both sides of the handshake use; not for others.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/net/frame.h"
#include "runtime/net/handshake.h"
#include "runtime/net/handshake.pb.h"

namespace kintsugi::net {

// Cuts the incoming bytes into the preamble and messages, and finds what is wrong with them.
class HandshakeReader {
 public:
  explicit HandshakeReader(uint16_t version) : version_(version), frames_(kHandshakeFrameLimitBytes) {}

  struct Event {
    enum class Kind { kNeedMore, kPreamble, kMessage, kFailure };
    Kind kind = Kind::kNeedMore;
    wire::HandshakeMessage message;
    std::optional<HandshakeFailure> failure;
  };
  Event Next(std::string_view* bytes);
  HandshakeFailure AtEndOfStream() const;

 private:
  Event ReadPreamble(std::string_view* bytes);

  const uint16_t version_;
  std::string preamble_;
  FrameDecoder frames_;
};

// All that a proof vouches for.
struct Transcript {
  uint16_t version = 0;
  std::string job, client_role, server_role, client_nonce, server_nonce, session_id;
};
Mac ProofOfClient(const Secret& secret, const Transcript& transcript);
Mac ProofOfServer(const Secret& secret, const Transcript& transcript);

void AppendMessage(std::string* out, const wire::HandshakeMessage& message);
HandshakeFailure OutOfTurn();
bool IsName(std::string_view name);
std::string ToHex(std::string_view bytes);

template <typename Bytes>
std::string AsString(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace kintsugi::net
