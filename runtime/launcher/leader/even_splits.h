// EvenSplits: what decides where exactly half of the ranks answer, as the leader goes by it: the rule that its own node
// has taken, and with a witness the one that all nodes are to take.
//
// Threads: one, that of the leader.
// Ownership: controller and account outlive it.
// Errors: none.
// Invariants: the controller hears of it only while the run goes on; without a witness no order is given.
#pragma once

#include <optional>
#include <set>

#include "runtime/controller/controller.h"
#include "runtime/core/witness.h"
#include "runtime/launcher/run/run_account.h"

namespace kintsugi {

class EvenSplits {
 public:
  // `voters`: with a witness, how many launchers there are; else nothing.
  EvenSplits(Controller& controller, const RunAccount& account, core::TieRule own, std::optional<int> voters);

  // The controller has begun.
  void OnStarted();
  // What this node goes by from now on; until when it holds the lease.
  void Take(core::TieRule rule);
  void TakeWord(TimePoint until);

  // What all nodes should go by; true: they are given another order. And who they are.
  bool Want(std::optional<core::TieRule> wanted);
  void SetVoters(std::set<int> voters);
  // A node came or went: what it said before counts no more. It has taken the order of this number.
  void OnAway(int node);
  void OnTaken(int node, uint64_t number);
  core::TieOrder order() const { return ties_ ? ties_->order() : core::TieOrder{}; }

 private:
  bool goes_on() const { return account_.started() && !account_.ended(); }

  Controller& controller_;
  const RunAccount& account_;
  core::TieRule rule_;
  std::optional<core::TieAgreement> ties_;  // with a witness
};

}  // namespace kintsugi
