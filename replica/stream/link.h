// Link: an ordered point-to-point message channel between two ranks, belonging to one generation.
//
// Messages arrive in order and whole. A send may wait until the peer receives it: two ends that both send first wait for
// each other. A receive names the size it expects; a message of another size is kDataLoss on the receiving side. 
// Threads: one thread sends, one receives (they may be the same); Abort may come from any thread at any moment and makes
// pending and later calls of this side return kCancelled within 100 ms. The peer sees kCommFailure, at once where the
// transport tells, else at its own abort.
// Errors: kCommFailure peer gone; kCancelled aborted; kDeadlineExceeded names the peer, elapsed and limit; kDataLoss.
// After any error the link is of no use: abort and destroy it, open a new one.
// Ownership: memory handed to Send stays readable and unchanged, memory handed to Receive stays writable and untouched,
// until the call returns; also after a failure nothing writes to it once the link is destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "callbacks/state/descriptors.h"
#include "runtime/base/clock.h"
#include "runtime/base/export.h"
#include "runtime/base/ids.h"
#include "runtime/base/status.h"

namespace kintsugi {

// Sees the bytes of a message while they pass a link, in consecutive pieces and while they are in the cache: what a
// checksum needs so as not to read the memory a second time. Called on the thread that sends or receives.
class KINTSUGI_EXPORT PieceObserver {
 public:
  virtual ~PieceObserver() = default;
  // The next bytes of the message: on the sending side before, while or just after they leave, on the receiving side in place.
  virtual void Passed(const void* data, uint64_t size_bytes) = 0;
  // On the receiving side, where the link copies by itself: copies the next bytes and takes note of them in one pass.
  virtual void Copy(void* to, const void* from, uint64_t size_bytes);
  // The block size (a power of two) of the kMultilinear checksums that would do instead of the next bytes, where these
  // lie on a device and the link can compute them there; 0: the bytes themselves. Asked when a message begins.
  virtual uint64_t WantsBlockSums() const { return 0; }
  // The checksums of the next bytes: whole blocks, but for the last one of a message.
  virtual void PassedSums(const uint64_t* /*sums*/, uint64_t /*count*/) {}
};

class KINTSUGI_EXPORT Link {
 public:
  virtual ~Link() = default;

  // Sends `size_bytes` (0 allowed) starting `offset` into `memory`. A kShared memory may be handed over without a copy
  // on this side.
  virtual Status Send(const Memory& memory, uint64_t offset, uint64_t size_bytes, TimePoint deadline,
                      PieceObserver* observer = nullptr) = 0;
  // Receives one message of exactly `size_bytes` into `data`.
  virtual Status Receive(void* data, uint64_t size_bytes, TimePoint deadline, PieceObserver* observer = nullptr) = 0;
  virtual void Abort() = 0;

  virtual Rank peer() const = 0;
  virtual std::string_view kind() const = 0;  // "in-process", "shared-memory", "tcp", "nccl"
};

// Sends bytes that lie in plain memory.
KINTSUGI_EXPORT Status SendBytes(Link& link, const void* data, uint64_t size_bytes, TimePoint deadline);

namespace internal {
// Where a message begins that is sent from `memory`. REQUIRES: it lies inside.
const uint8_t* SourceOf(const Memory& memory, uint64_t offset, uint64_t size_bytes);
// Messages of the errors that every link has: place, elapsed, limit.
Status LinkDeadline(const Link& link, std::string_view what, TimePoint start, TimePoint deadline);
Status LinkAborted(const Link& link, std::string_view what);
Status LinkPeerGone(const Link& link, std::string_view what, std::string_view why);
Status LinkSizeMismatch(const Link& link, uint64_t expected_bytes, uint64_t sent_bytes);
}  // namespace internal

}  // namespace kintsugi
