// Gate: the gate word in the rank's page, and the fence behind the update that was committed last. The trainer's thread
// moves the word by compare-and-swap and keeps its lock bit; the agent's sets that bit with one fetch-or.
//
// Threads: as said beside each. The fence is set before the word says committed, and taken away after the word was
// torn: a thread that reads the word first and looks for the fence then never finds an update committed that its device
// has not done.
// Ownership: refers to the page's words and to the trainer's fence, which outlive it.
// Errors: IsSettled: the fence's own.
// Invariants: only a release unlocks, and only what is locked.
#pragma once

#include <atomic>
#include <string>

#include "callbacks/state/device_memory.h"
#include "runtime/base/check.h"
#include "runtime/core/device_commit.h"
#include "runtime/core/gate_word.h"
#include "runtime/process/shared_page.h"

namespace kintsugi {

// What a marker says from the instant on at which the gate was locked.
inline Status Interrupted(const char* where) {
  return {StatusCode::kInterrupted, std::string(where) + ": an incident has begun"};
}

class Gate {
 public:
  // Locked: nothing passes a gate before the first release.
  void Open(SharedWords& words) {
    KINTSUGI_CHECK(!words_, "the gate is opened once");
    words_ = &words;
    word().store(Pack(core::GateState::kCommitted, 0) | kLockBit, std::memory_order_release);
  }

  // ---- any thread --------------------------------------------------------------------------------------------------

  core::GateWord Word() const { return core::GateWord::Unpack(word().load(std::memory_order_acquire)); }
  // May be late, for those who look often.
  bool SeemsLocked() const { return word().load(std::memory_order_relaxed) & kLockBit; }
  // An update that is under way becomes torn; false: none is.
  bool Tear();
  // The state of `step` is whole, and nobody has touched it since.
  bool StillAt(Step step) const;
  // Whether the device has done the update that was committed last.
  Result<bool> IsSettled() const;

  // ---- the agent's thread ------------------------------------------------------------------------------------------

  // What stood there: an update whose device is behind is still under way.
  core::GateWord Lock() {
    const core::GateWord before = core::GateWord::Unpack(word().fetch_or(kLockBit, std::memory_order_acq_rel));
    return core::WithDevice(before, fence_.load(std::memory_order_acquire) != nullptr);
  }
  // The run is over.
  void LockForGood() { word().fetch_or(kLockBit); }
  void SetCommitted(Step step) { word().store(Pack(core::GateState::kCommitted, step.value()) | kLockBit); }

  // ---- the trainer's thread ----------------------------------------------------------------------------------------

  void Release(Step step) {
    KINTSUGI_CHECK(Word().locked, "a gate that is not locked was released");
    word().store(Pack(core::GateState::kCommitted, step.value()), std::memory_order_release);
  }
  // Not locked, and `step` was the newest update.
  bool IsBefore(Step step) const {
    return word().load(std::memory_order_acquire) == Pack(core::GateState::kCommitted, step.value() - 1);
  }
  // From before(step) to `entered`. False: `found` stands there instead.
  bool Enter(Step step, core::GateState entered, core::GateWord* found) {
    uint64_t expected = Pack(core::GateState::kCommitted, step.value() - 1);
    if (word().compare_exchange_strong(expected, Pack(entered, step.value()))) [[likely]]
      return true;
    *found = core::GateWord::Unpack(expected);
    return false;
  }
  // Every rank holds the inputs: from at_gate(step) into the update. False: it was locked before.
  bool Pass(Step step) {
    uint64_t expected = Pack(core::GateState::kAtGate, step.value());
    return word().compare_exchange_strong(expected, Pack(core::GateState::kUpdating, step.value()));
  }
  // Held at the gate, and now it is known whether update `step` happens.
  void Judge(Step step, bool happens) {
    KINTSUGI_CHECK(step.value() > 0, "there is no update 0");
    word().store(Pack(happens ? core::GateState::kUpdating : core::GateState::kCommitted,
                      happens ? step.value() : step.value() - 1) |
                 kLockBit);
  }
  // From updating(step) to committed(step), locked or not; false: `found` is something else. `update`: what its device
  // is still at; null: nothing.
  bool Commit(Step step, const DeviceFence* update, uint64_t* found) {
    *found = word().load(std::memory_order_relaxed);
    do {
      if ((*found & ~kLockBit) != Pack(core::GateState::kUpdating, step.value())) [[unlikely]]
        return false;
      // Before the word says committed: its reader looks for the fence next.
      if (update) SetFence(update, step);
    } while (
        !word().compare_exchange_weak(*found, Pack(core::GateState::kCommitted, step.value()) | (*found & kLockBit)));
    return true;
  }
  // Keeps the lock bit, which the agent's thread may set at any moment.
  void MoveTo(core::GateState state, Step step);
  // What the update that was committed last waits for; null: its device has done it.
  const DeviceFence* fence() const { return fence_.load(std::memory_order_relaxed); }
  void DropFence() {
    fence_.store(nullptr, std::memory_order_release);
    words_->device_behind.store(0, std::memory_order_release);
  }

  static constexpr uint64_t kLockBit = core::GateWord::kLockBit;

 private:
  // Its launcher looks at the page when the process is gone.
  void SetFence(const DeviceFence* update, Step step) {
    words_->device_behind.store(step.value(), std::memory_order_release);
    fence_.store(update, std::memory_order_release);
  }
  static constexpr uint64_t Pack(core::GateState state, uint64_t step) { return core::GateWord::Pack(state, step); }
  std::atomic<uint64_t>& word() const { return words_->gate_word; }

  SharedWords* words_ = nullptr;
  std::atomic<const DeviceFence*> fence_{nullptr};
};

}  // namespace kintsugi
