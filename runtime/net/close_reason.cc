#include "runtime/net/close_reason.h"

namespace kintsugi::net {
namespace {

uint64_t* FrameDetail(TransportCounters* counters, CloseReason reason) {
  switch (reason) {
    case CloseReason::kMessage: return &counters->messages_malformed;
    case CloseReason::kFrameEmpty: return &counters->frames_empty;
    case CloseReason::kFrameOversized: return &counters->frames_oversized;
    case CloseReason::kFrameTruncated: return &counters->frames_truncated;
    default: return nullptr;
  }
}

uint64_t* Refused(TransportCounters* counters, CloseReason reason) {
  switch (reason) {
    case CloseReason::kMagic: return &counters->refused_magic;
    case CloseReason::kVersion: return &counters->refused_version;
    case CloseReason::kJob: return &counters->refused_job;
    case CloseReason::kTls: return &counters->refused_tls;
    case CloseReason::kSecret: return &counters->refused_secret;
    case CloseReason::kTimeout: return &counters->refused_timeout;
    case CloseReason::kLimit: return &counters->refused_limit;
    case CloseReason::kLocal: return &counters->closed_local;
    case CloseReason::kPeer: return &counters->refused_gone;
    default: return &counters->refused_frame;
  }
}

uint64_t* Closed(TransportCounters* counters, CloseReason reason) {
  switch (reason) {
    case CloseReason::kPeer: return &counters->closed_peer;
    case CloseReason::kQueue: return &counters->closed_queue;
    case CloseReason::kTls:
    case CloseReason::kFrameEmpty:
    case CloseReason::kFrameOversized:
    case CloseReason::kFrameTruncated: return &counters->closed_frame;
    default: return &counters->closed_local;
  }
}

}  // namespace

std::string_view CloseReasonName(CloseReason reason) {
  switch (reason) {
    case CloseReason::kLocal: return "local";
    case CloseReason::kPeer: return "peer";
    case CloseReason::kMagic: return "magic";
    case CloseReason::kVersion: return "version";
    case CloseReason::kJob: return "job";
    case CloseReason::kTls: return "tls";
    case CloseReason::kSecret: return "secret";
    case CloseReason::kMessage: return "message";
    case CloseReason::kFrameEmpty: return "frame-empty";
    case CloseReason::kFrameOversized: return "frame-oversized";
    case CloseReason::kFrameTruncated: return "frame-truncated";
    case CloseReason::kTimeout: return "timeout";
    case CloseReason::kLimit: return "limit";
    case CloseReason::kQueue: return "queue";
  }
  return "unknown";
}

bool MayRetry(CloseReason reason) {
  switch (reason) {
    case CloseReason::kVersion:
    case CloseReason::kJob:
    case CloseReason::kTls:
    case CloseReason::kSecret: return false;
    default: return true;
  }
}

void TransportCounters::Count(CloseReason reason, bool was_authenticated) {
  ++*(was_authenticated ? Closed(this, reason) : Refused(this, reason));
  if (uint64_t* detail = FrameDetail(this, reason)) ++*detail;
}

std::vector<std::pair<std::string_view, uint64_t>> TransportCounters::Fields() const {
  return {{"accepted", accepted},
          {"authenticated", authenticated},
          {"refused_magic", refused_magic},
          {"refused_version", refused_version},
          {"refused_job", refused_job},
          {"refused_tls", refused_tls},
          {"refused_secret", refused_secret},
          {"refused_frame", refused_frame},
          {"refused_timeout", refused_timeout},
          {"refused_limit", refused_limit},
          {"refused_gone", refused_gone},
          {"closed_local", closed_local},
          {"closed_peer", closed_peer},
          {"closed_frame", closed_frame},
          {"closed_queue", closed_queue},
          {"frames_empty", frames_empty},
          {"frames_oversized", frames_oversized},
          {"frames_truncated", frames_truncated},
          {"messages_malformed", messages_malformed}};
}

}  // namespace kintsugi::net
