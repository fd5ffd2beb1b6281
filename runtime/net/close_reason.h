// Why a connection ended, and the counters that `kintsugi status` shows. One enum for refusals (before the handshake
// was complete) and for ends (after it).
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace kintsugi::net {

enum class CloseReason {
  kLocal,           // this side closed it
  kPeer,            // the peer closed or reset it, or the network lost it
  kMagic,           // the first bytes are not Kintsugi's: some other protocol, or garbage
  kVersion,         // the peer speaks another version of the protocol
  kJob,             // the peer belongs to another job
  kTls,             // the peer speaks no TLS, or one side refuses the other's certificate
  kSecret,          // the peer does not know the job's secret
  kMessage,         // a handshake message that does not parse or comes out of turn
  kFrameEmpty,      // a frame of length zero
  kFrameOversized,  // a frame above the limit
  kFrameTruncated,  // the stream ended within a frame
  kTimeout,         // the handshake did not end in time
  kLimit,           // too many connections
  kQueue,           // this side's send queue is full: the peer does not read
};

std::string_view CloseReasonName(CloseReason reason);

// A client may try again after these: the next attempt may find another state of things.
bool MayRetry(CloseReason reason);

struct TransportCounters {
  uint64_t accepted = 0;       // TCP connections taken from the backlog (client: connects that succeeded)
  uint64_t authenticated = 0;  // handshakes that ended well

  // Before the handshake was complete.
  uint64_t refused_magic = 0;
  uint64_t refused_version = 0;
  uint64_t refused_job = 0;
  uint64_t refused_tls = 0;
  uint64_t refused_secret = 0;
  uint64_t refused_frame = 0;  // empty, oversized, truncated frame or malformed message
  uint64_t refused_timeout = 0;
  uint64_t refused_limit = 0;
  uint64_t refused_gone = 0;  // the peer left by itself

  // After it.
  uint64_t closed_local = 0;
  uint64_t closed_peer = 0;
  uint64_t closed_frame = 0;  // or broken TLS
  uint64_t closed_queue = 0;

  // What refused_frame and closed_frame consist of.
  uint64_t frames_empty = 0;
  uint64_t frames_oversized = 0;
  uint64_t frames_truncated = 0;
  uint64_t messages_malformed = 0;

  void Count(CloseReason reason, bool was_authenticated);
  std::vector<std::pair<std::string_view, uint64_t>> Fields() const;
};

}  // namespace kintsugi::net
