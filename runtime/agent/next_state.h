// NextState: what this rank is to hold once its state is cut anew (Agent::CutAnew), beside what is registered.
//
// It is said in REBUILD, filled in REPAIR, compared in VERIFY, and used from ROLLBACK on. Once the run goes on, or an order names
// its generation as the one whose registration counts, it is what is registered; any order of another generation drops it. What
// was registered before is as it was, and offered to the launcher, until then.
//
// Threads: the trainer's.
// Ownership: of the registry that is to come; refers to that of Registration.
// Errors: Take: kFailedPrecondition: not now; kInvalidArgument: it does not fit. A refused call changes nothing.
// Invariants: between two tasks there is at most one, of the newest generation.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "runtime/agent/registration.h"
#include "runtime/agent/relocations.h"
#include "runtime/agent/state_offer.h"
#include "runtime/agent/tensor_addresses.h"

namespace kintsugi {

class NextState {
 public:
  NextState(Registration& registered, TensorAddresses& addresses, StateOffer& offer, Relocations& relocations)
      : registered_(registered), addresses_(addresses), offer_(offer), relocations_(relocations) {}

  // REQUIRES: a task of REBUILD is open that cuts state anew, in this generation.
  Status Take(const CutState& state, Generation generation);
  // What the controller hears of it; nothing: nothing was said.
  std::optional<core::Registered> Told() const;
  // Before a task.
  void Settle(const core::RunOnTrainer& run);
  // The run goes on.
  void Keep();

 private:
  struct Next {
    Generation generation;
    StateRegistry registry;
    std::map<int, core::GroupClaim> layouts;
    Aliases aliases;
  };
  void Use();
  void Swap();
  void Drop();
  void Forget();

  Registration& registered_;
  TensorAddresses& addresses_;
  StateOffer& offer_;
  Relocations& relocations_;
  std::optional<Next> next_;
  bool used_ = false;  // it is in the registry, which is in `next_`
};

}  // namespace kintsugi
