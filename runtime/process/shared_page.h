// SharedPage: the memory that one rank's agent shares with its launcher: liveness, progress, the gate's word, fired
// injections and the reports of committed steps. The launcher reads it many times a second without a message.
//
// The same page exists without a launcher as plain memory, so that the agent's code has one path.
//
// Threads: every word is a lock-free atomic; who writes which is said beside it.
// Ownership: a SharedPage owns its mapping and, when it created the memory, the descriptor. The memory has no name: it
//   is gone with the last process that maps it.
// Errors: Open refuses what is not a page of this version; nothing that another process writes into the page can crash
//   or hang the code here. The memory is sealed, so that nobody can truncate it under a reader.
// Units: *_ns are nanoseconds of CLOCK_MONOTONIC, 0 for "never".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/base/export.h"
#include "runtime/base/result.h"
#include "runtime/process/report_ring.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi {

// The page's layout. Words with different writers lie on different cache lines.
struct SharedWords {
  static constexpr uint64_t kMagic = 0x6b696e7473756769;  // "kintsugi"
  static constexpr uint64_t kVersion = 4;

  // Constant after creation.
  alignas(64) std::atomic<uint64_t> magic{kMagic};
  std::atomic<uint64_t> version{kVersion};
  std::atomic<uint64_t> size_bytes;

  // {locked, state, step}: moved by the trainer, locked by the agent's thread.
  alignas(64) std::atomic<uint64_t> gate_word{0};
  // The trainer's thread: what it has done to its registered memory (core::StateMark).
  std::atomic<uint64_t> state_mark{0};
  // The trainer's thread: the newest update that its device was not seen to have done; 0: none. A process that ends then takes the rest with it.
  std::atomic<uint64_t> device_behind{0};

  // The agent's thread: counts up while it lives.
  alignas(64) std::atomic<uint64_t> beat{0};
  std::atomic<uint64_t> beat_ns{0};

  // The trainer's thread: step, activity, phase and collectives (runtime/base/train_phase.h), and when it was set.
  alignas(64) std::atomic<uint64_t> progress{0};
  std::atomic<uint64_t> progress_ns{0};
  // The newest generation in which this rank has entered a forward pass again.
  std::atomic<uint64_t> resumed_generation{0};

  // The trainer's thread, before it carries out an injection: its bit, and the instant of the fault.
  alignas(64) std::atomic<uint64_t> fired_injections{0};
  std::atomic<uint64_t> fault_ns{0};

  // That instant, as long as the trainer has not gone on from there: what happens later is no fault of the injector's.
  uint64_t PresentFaultNs() const {
    const uint64_t at = fault_ns.load();
    return at >= progress_ns.load() ? at : 0;
  }

  ReportRing reports;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "the page is shared between processes");

class KINTSUGI_EXPORT SharedPage {
 public:
  // A launcher's page: sealed memory behind a descriptor that a child process can be given.
  static Result<SharedPage> Create();

  // Plain memory for an agent that no launcher watches; fd() is -1.
  static Result<SharedPage> CreateLocal();

  // Maps the page behind `fd`, which stays the caller's and may be closed afterwards. kInvalidArgument when it is not a
  // page, kFailedPrecondition when it is one of another version.
  static Result<SharedPage> Open(int fd);

  SharedWords& words() { return *words_; }
  const SharedWords& words() const { return *words_; }

  // To be passed to the rank's process; -1 unless this object created shared memory.
  int fd() const { return fd_.get(); }

 private:
  struct Unmap {
    void operator()(SharedWords* words) const;
  };

  SharedPage(SharedWords* words, UniqueFd fd) : words_(words), fd_(std::move(fd)) {}

  std::unique_ptr<SharedWords, Unmap> words_;
  UniqueFd fd_;
};

}  // namespace kintsugi
