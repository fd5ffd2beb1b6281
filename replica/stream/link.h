// Link: an ordered point-to-point message channel between two ranks, belonging to one generation.
//
// Messages arrive in order and whole. A receive names the size it expects; a message of another size is kDataLoss on
// the receiving side (Gloo of 2022 would deliver a shorter one silently: every link carries its own length).
// Threads: one thread sends, one receives (they may be the same); Abort may come from any thread at any moment and makes
// pending and later calls of this side return kCancelled within 100 ms. The peer sees kCommFailure, at once where the
// transport tells, else at its own abort.
// Errors: kCommFailure peer gone; kCancelled aborted; kDeadlineExceeded names the peer, elapsed and limit; kDataLoss.
// Ownership: memory handed to Send stays readable and unchanged, memory handed to Receive stays writable and untouched,
// until the call returns; also after a failure nothing writes to it once the link is destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "callbacks/state/descriptors.h"
#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "runtime/base/status.h"

namespace kintsugi {

class Link {
 public:
  virtual ~Link() = default;

  // Sends `size_bytes` (0 allowed) starting `offset` into `memory`. A kShared memory may be handed over without a copy
  // on this side.
  virtual Status Send(const Memory& memory, uint64_t offset, uint64_t size_bytes, TimePoint deadline) = 0;
  // Receives one message of exactly `size_bytes` into `data`.
  virtual Status Receive(void* data, uint64_t size_bytes, TimePoint deadline) = 0;
  virtual void Abort() = 0;

  virtual Rank peer() const = 0;
  virtual std::string_view kind() const = 0;  // "in-process", "shared-memory", "gloo", "nccl"
};

}  // namespace kintsugi
