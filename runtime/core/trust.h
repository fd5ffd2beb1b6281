// Trust: what a rank's state is worth: that of the process which it has, and the memory that its launcher holds of the one before.
//
//   what happened                         | its process's state           | what is held
//   --------------------------------------|-------------------------------|------------------------------------------
//   Lose: the process is gone             | none yet: fresh, and torn     | goes where its life is doubted; a life
//                                         | where the run ever went       | that was torn is doubted from now on
//   Leave: the life before is of no use   |                               | goes; doubted up to that life
//   Find: of one that is taken over       | fresh, or not                 |
//   Tear: nothing of it is known to be so | torn                          |
//   Damage: these tensors are not         | damaged; torn where it was    |
//   Widen: ... and more than these        | torn where it was damaged     |
//   Drop: these are no state any more     | good, where nothing is left   |
//   Adopt: it maps what is held           | is what is held               |
//   Hold: the launcher told               |                               | what was told, but of a doubted life
//   DoubtHeld: it differs, or is damaged  |                               | goes; doubted up to that life
//   Settle: all have compared, or begin   | good                          |
//   Outgrow: all are in their loops       |                               | goes: it is older
//
// Threads: none; pure.
// Errors: none.
// Invariants: what is damaged needs a repair; memory of a life that was doubted is never held (Check).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/core/held_state.h"

namespace kintsugi::core {

class Trust {
 public:
  // A process that has not held the run's state yet.
  bool fresh() const { return fresh_; }
  // Its state is torn, or damaged in these tensors alone.
  bool needs_repair() const { return needs_repair_; }
  bool is_damaged_only() const { return !damaged_keys_.empty(); }
  const std::vector<std::string>& damaged_keys() const { return damaged_keys_; }
  // It was told to map what is held, and may have.
  bool adopted() const { return adopted_; }
  const std::optional<HeldState>& held() const { return held_; }
  // The newest life whose memory is not to be adopted.
  Incarnation doubted() const { return doubted_; }
  // How often a copy of it differed since it last settled.
  int mismatches() const { return mismatches_; }

  void Lose(Incarnation life, bool ever_ran);
  void Leave(Incarnation life);
  void Find(bool fresh) { fresh_ = fresh; }
  void Tear();
  void Damage(const std::vector<std::string>& keys);
  void Widen() { damaged_keys_.clear(); }
  void Drop(const std::vector<std::string>& keys);
  void Adopt(bool adopted = true) { adopted_ = adopted; }
  void Hold(const std::optional<HeldState>& held);
  // It turned out not to be what it should be: the state is streamed instead.
  void DoubtHeld();
  int CountMismatch() { return ++mismatches_; }
  void Settle();
  void Outgrow() { held_.reset(); }

  void Check() const;

 private:
  bool fresh_ = false, needs_repair_ = false, adopted_ = false;
  std::vector<std::string> damaged_keys_;  // with needs_repair_: only these
  std::optional<HeldState> held_;          // of the process before this one
  Incarnation doubted_;
  int mismatches_ = 0;
};

}  // namespace kintsugi::core
