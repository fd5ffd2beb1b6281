// LoopPass: one pass through the trainer's loop, from a release to where it is left: whose thread it is, from which step
// it goes on, what it has begun.
//
// Threads: the trainer's; CheckThread is for any that calls a marker, IsItsThread for any.
// Ownership: its own.
// Errors: CheckThread: kFailedPrecondition, a second thread is in the loop.
// Invariants: a loop belongs to the thread that called first since it was entered.
#pragma once

#include <pthread.h>

#include <atomic>
#include <string>
#include <utility>

#include "runtime/agent/inbox.h"
#include "runtime/base/ids.h"

namespace kintsugi {

class LoopPass {
 public:
  // A release was taken: the next pass goes on from its step.
  void OnRelease(const Inbox::Release& release) {
    release_ = release;
    ever_released_ = true;
  }
  void Begin();

  // Two threads in one loop are told apart by who came first since it was entered.
  Status CheckThread(const char* where) {
    const uintptr_t self = Self();
    uintptr_t owner = thread_.load(std::memory_order_relaxed);
    if (owner == self) [[likely]]
      return Status::Ok();
    if (owner == 0 && thread_.compare_exchange_strong(owner, self)) return Status::Ok();
    return OnSecondThread(where);
  }
  bool IsItsThread() const { return thread_.load(std::memory_order_relaxed) == Self(); }

  // False: this pass has begun it before.
  bool BeginStep(Step step) {
    if (std::exchange(begun_, step) == step) return false;
    collectives_ = 0;
    return true;
  }
  // 1, 2, ... in the step.
  int BeginCollective() { return ++collectives_; }
  // True once a pass: its first step has begun, and nobody knows yet.
  bool TellResumed() { return !std::exchange(resumed_told_, true); }

  Generation generation() const { return release_.generation; }
  Step released_at() const { return release_.step; }
  bool ever_released() const { return ever_released_; }

 private:
  static uintptr_t Self() { return static_cast<uintptr_t>(pthread_self()); }
  static Status OnSecondThread(const char* where);

  Inbox::Release release_;
  bool ever_released_ = false;
  bool resumed_told_ = true;
  Step begun_;
  int collectives_ = 0;               // begun in this step
  std::atomic<uintptr_t> thread_{0};  // 0: nobody has called yet
};

}  // namespace kintsugi
