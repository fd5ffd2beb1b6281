// Relocations: registered tensors that move, or are no part of the state any more: asked for within tasks of the trainer's,
// in effect when the task is over, told to the controller then.
//
// Threads: the trainer's.
// Ownership: what is unregistered, here or elsewhere.
// Errors: kFailedPrecondition: not now; kInvalidArgument, kNotFound: not this tensor. A refused call changes nothing.
// Invariants: while a tensor moves the launcher holds nothing of the state.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "runtime/agent/agent_thread.h"
#include "runtime/agent/registration.h"
#include "runtime/agent/state_offer.h"
#include "runtime/agent/tensor_addresses.h"
#include "runtime/agent/trainer_position.h"

namespace kintsugi {

class Relocations {
 public:
  Relocations(const Registration& registered, const TrainerPosition& position, TensorAddresses& addresses,
              StateOffer& offer, AgentThread& thread)
      : registered_(registered), position_(position), addresses_(addresses), offer_(offer), thread_(thread) {}

  Status Rebind(const ShardedTensor& tensor);
  Status Unregister(const std::string& key);
  // Another rank has unregistered them: those of them that this one holds.
  Status Drop(const std::vector<std::string>& keys);
  // The trainer's part of a task begins, or is over: what was asked for takes effect.
  void Settle();

  const std::set<std::string>& unregistered() const { return unregistered_; }
  // What this rank has, for the controller: now, and again whenever it changes.
  void TellReady();

 private:
  Status CheckMayMove(const std::string& key, const char* what) const;
  Status Begin(const std::string& what);

  const Registration& registered_;
  const TrainerPosition& position_;
  TensorAddresses& addresses_;
  StateOffer& offer_;
  AgentThread& thread_;
  std::set<std::string> unregistered_;
};

}  // namespace kintsugi
