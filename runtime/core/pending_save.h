// PendingSave: a save that somebody asked for, from the request to its answer. An incident that interrupts it has it made
// afterwards, so often.
//
// Threads: none; pure.
// Invariants: each request is answered: by a save, or by being given up.
#pragma once

#include <utility>

namespace kintsugi::core {

class PendingSave {
 public:
  // So often may incidents interrupt it.
  static constexpr int kInterruptionsMax = 3;

  void Ask() {
    waits_ = true;
    interruptions_ = 0;
  }
  // It is to be begun once the run goes on.
  bool waits() const { return waits_; }
  // The next save is the one that waited, if one did.
  void Begin() { owed_ = std::exchange(waits_, false); }
  // The save under way was asked for.
  bool owed() const { return owed_; }
  void Answer() { owed_ = false; }
  // An incident ends the save under way. `leaving`: there is none after it. True: it is given up, and to be answered.
  bool Interrupt(bool leaving) {
    if (!std::exchange(owed_, false) || leaving) return false;
    waits_ = ++interruptions_ < kInterruptionsMax;
    return !waits_;
  }

 private:
  bool waits_ = false;
  bool owed_ = false;
  int interruptions_ = 0;
};

}  // namespace kintsugi::core
