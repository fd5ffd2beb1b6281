// Handlers: what a parked trainer's thread runs for the controller: order in, answer out; clean, rebuild, verify and
// rollback are here, repairs and saves are parts of their own.
//
// Threads: none.
// Ownership: of nothing; the order that a thread runs is its process's.
// Errors: an order of a phase that has no handler is a broken promise.
// Invariants: each order is answered once, also where it was cancelled; handlers keep their limit.
#pragma once

#include "runtime/sim/checkpoints.h"
#include "runtime/sim/collectives.h"
#include "runtime/sim/held_memory.h"
#include "runtime/sim/network.h"
#include "runtime/sim/refusals.h"
#include "runtime/sim/relayouts.h"
#include "runtime/sim/trainers.h"
#include "runtime/sim/transfers.h"
#include "runtime/sim/upward.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class Handlers final : public HandlerEnd {
 public:
  Handlers(World& world, StateChecker& checker, Network& network, HeldMemory& held, Collectives& collectives,
           Refusals& refusals, Trainers& trainers, Relayouts& relayouts, Transfers& transfers, Checkpoints& checkpoints,
           AgentInbox& agents)
      : world_(world),
        state_checker_(checker),
        network_(network),
        held_(held),
        collectives_(collectives),
        refusals_(refusals),
        trainers_(trainers),
        relayouts_(relayouts),
        transfers_(transfers),
        checkpoints_(checkpoints),
        agents_(agents) {}

  // The trainer's thread takes the order that waits for it.
  void Start(Process* p);
  void Finish(Process* p, PhaseDone done) override;
  void Cancel(Process* p);
  void OnStoreReply(Process* p, const StoreReply& reply);

 private:
  void Run(Process* p);
  void Rebuild(Process* p);
  // As the order says; false: that breaks a promise.
  bool TakeCrew(Process* p);
  bool TakeParts(Process* p);
  std::vector<Rank> TakersOf(Rank seat, const core::Crew& crew) const;
  void Connect(Process* p);
  void Verify(Process* p);
  void Rollback(Process* p);

  World& world_;
  StateChecker& state_checker_;
  Network& network_;
  HeldMemory& held_;
  Collectives& collectives_;
  Refusals& refusals_;
  Trainers& trainers_;
  Relayouts& relayouts_;
  Transfers& transfers_;
  Checkpoints& checkpoints_;
  AgentInbox& agents_;
  uint64_t next_request_ = 1;
  std::map<std::vector<Rank>, std::shared_ptr<const core::Crew>> crews_;  // each that was ordered, once
};

}  // namespace kintsugi::sim
