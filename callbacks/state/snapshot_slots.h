// SnapshotSlots: two slots for the in-memory snapshots of one owner, and which step each of them holds.
//
// A snapshot that is being made goes into the slot that does not hold the step to keep: the newest snapshot that
// counts is never overwritten by the one that follows it. Only what was finished is ever found. The bytes lie with
// its user (replica/snapshot in a run, the simulator's ranks in a virtual one).
// Threads: none; its user locks.
// Errors: none.
// Invariants: no two slots hold one step; a slot in the making holds none.
#pragma once

#include <array>
#include <optional>

#include "runtime/base/export.h"
#include "runtime/base/ids.h"

namespace kintsugi {

class KINTSUGI_EXPORT SnapshotSlots {
 public:
  static constexpr int kSlots = 2;

  // The slot for a snapshot of `step`, empty from now on and not the one that holds `keep` (0: nothing is kept). What
  // was in the making is given up. REQUIRES: step is not 0 and not `keep`.
  int Begin(Step step, Step keep);
  // What is in the making is whole.
  void Finish();
  // What is in the making is given up: its slot stays empty.
  void Abandon() { making_.reset(); }
  // The slot that holds all of `step`.
  std::optional<int> Find(Step step) const;
  // The slot in the making, where there is one.
  std::optional<int> making() const;

 private:
  struct Making {
    int slot = 0;
    Step step;
  };
  std::array<Step, kSlots> whole_{};  // 0: empty
  std::optional<Making> making_;
};

}  // namespace kintsugi
