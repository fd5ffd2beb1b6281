// Status: the outcome of an operation, with a code that tells the caller what to do next.
//
// Errors: this file defines them. A message names the place (rank, peer, generation, phase, elapsed, limit) and the
// remedy; tests match codes, never messages' full text.
// Threads: a Status is a value; distinct objects may be used from distinct threads.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/export.h"

namespace kintsugi {

enum class StatusCode : int {
  kOk = 0,
  kInterrupted = 1,         // an incident has begun: return this status from the training loop, the guard does the rest
  kCommFailure = 2,         // a peer or link failed under the caller: return it from the loop, never treat it as one's own fault
  kDeadlineExceeded = 3,    // the named limit ran out: look at the peer it names
  kUnavailable = 4,         // retry this call later; nothing was changed
  kInvalidArgument = 5,     // fix the configuration or the call; retrying is useless
  kFailedPrecondition = 6,  // the object is not in a state that allows the call; the message says which state would
  kNotFound = 7,            // the named thing does not exist
  kDataLoss = 8,            // bytes are damaged or missing: use another copy
  kResourceExhausted = 9,   // memory, disk, descriptors or a stated bound ran out: free some and retry
  kPermissionDenied = 10,   // the operating system or the peer refused: fix rights or the secret
  kCancelled = 11,          // a newer generation superseded the work: drop it
  kEnded = 12,              // the run is over: leave with the exit code the run's end named
  kInternal = 13,           // a bug of ours: report it
};

KINTSUGI_EXPORT std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] KINTSUGI_EXPORT Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return {}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // "CODE_NAME: message", or "OK".
  std::string ToString() const;

  // The same code with `context` and a colon in front of the message: how a caller adds the place it knows.
  Status Annotate(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

}  // namespace kintsugi

// Returns the status of `expression` from the enclosing function unless it is ok.
#define KINTSUGI_RETURN_IF_ERROR(expression)            \
  do {                                                  \
    ::kintsugi::Status kintsugi_status_ = (expression); \
    if (!kintsugi_status_.ok()) return kintsugi_status_; \
  } while (false)
