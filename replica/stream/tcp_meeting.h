// MeetOverTcp: connects two ranks that know each other by a store only.
//
// One listens and says where, the other dials. Each proves by a random number from the store that it is the one that was meant:
// a stranger at the port is turned away, and the wait goes on.
// Threads: any, one call per meeting.
// Errors: the Store's; kDeadlineExceeded, kCancelled; kCommFailure where the other one is gone; kInvalidArgument for an address
// that is not this host's; kResourceExhausted where no port of KINTSUGI_PORTS is free.
// Ownership: the socket is the caller's; nothing is left behind after an error.
#pragma once

#include <string>

#include "callbacks/handlers/cancel.h"
#include "callbacks/handlers/store.h"
#include "replica/stream/rank_address.h"
#include "runtime/base/clock.h"
#include "runtime/base/export.h"
#include "runtime/base/result.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi {

struct TcpMeeting {
  std::string prefix;   // names the meeting in the store; no two of one store share it
  bool listens = true;  // this side, the other one dials
  TimePoint deadline;
  RankAddress address;            // where this side listens
  CancelToken* cancel = nullptr;  // ends the meeting; may be null
};

// A connected socket to the other side.
KINTSUGI_EXPORT Result<UniqueFd> MeetOverTcp(Store& store, const TcpMeeting& meeting);

}  // namespace kintsugi
