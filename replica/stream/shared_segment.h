// SharedSegment: the memory that the two ends of a shared-memory link have in common.
//
// One anonymous memfd with a ring of slots per direction. A slot holds a piece of a message, or says where the receiver finds
// the whole message in a file of the sender.
// Counters only grow; slot i of the count lies at i modulo kSlots. The producer writes a slot's header and bytes before it
// raises `produced`, the consumer is done with them before it raises `consumed`.
// A waiter announces itself in `waiters`, reads the event word, looks once more and sleeps on the word (futex); who changes
// something raises the word and wakes it.
// Threads: per direction one producer and one consumer.
// Errors: kFailedPrecondition where the segment cannot be opened.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "runtime/base/result.h"

namespace kintsugi {

enum class SlotKind : uint32_t {
  kStart = 1,     // first piece of a message; its bytes lie in the slot
  kContinue = 2,  // further piece
  kFile = 3,      // the message lies in a memfd of the sender
};

struct SlotHeader {
  SlotKind kind = SlotKind::kStart;
  uint32_t part_bytes = 0;      // kStart, kContinue
  uint64_t message_bytes = 0;   // all but kContinue
  uint64_t place = 0;           // kFile: offset in the file
  uint64_t inode = 0;           // kFile
  uint64_t device = 0;          // kFile
  int32_t fd = -1;              // kFile
  uint32_t refused = 0;         // set by the consumer: it cannot read from there, send the bytes
};

struct WaitWord {
  alignas(64) std::atomic<uint32_t> event{0};
  std::atomic<uint32_t> waiters{0};
};

struct SharedRing {
  static constexpr uint64_t kSlots = 8;
  static constexpr uint64_t kSlotBytes = 128 * 1024;  // all slots of a direction stay in a core's second-level cache

  alignas(64) std::atomic<uint64_t> produced{0};
  alignas(64) std::atomic<uint64_t> consumed{0};
  WaitWord data;   // the consumer waits here
  WaitWord space;  // the producer waits here
  alignas(64) SlotHeader headers[kSlots];
};

struct SegmentHeader {
  uint64_t magic = 0;
  uint64_t nonce = 0;
  std::atomic<uint32_t> closed[2] = {0, 0};  // by end: the lower rank's is 0
  SharedRing rings[2];                       // [i]: from end i to end 1 - i
};

class SharedSegment {
 public:
  static Result<SharedSegment> Create(uint64_t nonce);
  // Opens what process `pid` created as its descriptor `fd`; checks that it is that segment.
  static Result<SharedSegment> Open(pid_t pid, int fd, uint64_t nonce);
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&&) = delete;
  ~SharedSegment();

  SegmentHeader& header() const { return *header_; }
  uint8_t* slot(int direction, uint64_t count) const;
  int fd() const { return fd_; }
  // The peer has opened the segment: the descriptor is needed no more.
  void CloseDescriptor();

 private:
  SharedSegment(int fd, void* data) : fd_(fd), header_(static_cast<SegmentHeader*>(data)) {}
  int fd_ = -1;
  SegmentHeader* header_ = nullptr;
};

// Raises the word and wakes who sleeps on it.
void SignalWord(WaitWord& word);
// Sleeps until the word differs from `seen` or `limit_ns` has passed; may return early.
void SleepOnWord(WaitWord& word, uint32_t seen, int64_t limit_ns);

}  // namespace kintsugi
