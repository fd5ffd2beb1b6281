// Injections: carries out the faults that were ordered for this rank, where the trainer's markers say that it is.
//
// Threads: the trainer's.
// Ownership: of nothing but its own record.
// Errors: the status that the marker gives, where the fault is one that the trainer sees.
// Invariants: a fault is told in the page before it strikes: the launcher's ledger must know even when this process is gone
// in the next instruction.
#pragma once

#include <functional>
#include <utility>

#include "runtime/agent/armed_faults.h"
#include "runtime/agent/fault_reports.h"
#include "runtime/agent/state_damage.h"

namespace kintsugi {

class Injections {
 public:
  Injections(const Membership& self, const Registration& registered, RankPage& page, const Gate& gate,
             ArmedFaults& armed, FaultReports& reports)
      : self_(self), page_(page), gate_(gate), armed_(armed), reports_(reports), damage_(registered) {}

  // A forward pass begins: slower, where that was ordered.
  void SlowDown() const;
  Status StrikeIfDue(Step step, const std::function<bool(const Injection&)>& is_here);
  // Whether the one that struck last is an exception, which the caller's own code has to throw.
  bool TakeThrow() { return std::exchange(throw_, false); }
  // ... is a bit that the caller has to flip in what it gives to the collective.
  bool TakeFlip() { return std::exchange(flip_, false); }

 private:
  Status Strike(const Injection& injection, Step step);
  Status StrikeDevice(const Injection& injection, Step step);
  Status Hang(const Injection& injection) const;

  const Membership& self_;
  RankPage& page_;
  const Gate& gate_;
  ArmedFaults& armed_;
  FaultReports& reports_;
  const StateDamage damage_;
  Duration slow_{};
  bool throw_ = false;
  bool flip_ = false;
};

}  // namespace kintsugi
