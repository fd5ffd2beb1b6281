// TrainerPosition: where the trainer's thread is, as the guard sees it.
//
// Threads: the trainer's.
// Ownership: its own.
// Errors: Misplaced: a call out of turn; it says what comes first.
// Invariants: a task leaves the thread where it found it.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/core/messages.h"

namespace kintsugi {

enum class TrainerAt : uint8_t { kOutside, kParked, kInLoop, kAtSavePoint, kInTask, kEnded };

class TrainerPosition {
 public:
  TrainerAt at() const { return at_; }
  void Go(TrainerAt at) { at_ = at; }
  void BeginTask(core::Phase phase);
  void EndTask();
  // The phase of the open task; nothing: no task is open.
  std::optional<core::Phase> phase() const;

  std::string_view Name() const;
  Status Misplaced(const char* call) const;

 private:
  TrainerAt at_ = TrainerAt::kOutside;
  TrainerAt before_ = TrainerAt::kParked;  // where the open task will leave it
  core::Phase phase_ = core::Phase::kRunning;
};

}  // namespace kintsugi
