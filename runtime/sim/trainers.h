// Trainers: the trainer's thread of each process in its loop: forward pass, gradients, gate, update, parameters; and
// where it parks.
//
// Threads: none; a virtual thread is its process's `at`, and the timer that its next move waits for.
// Ownership: of nothing; what a thread is at is its process's.
// Errors: an update out of order, or a meeting left where none is, is a broken promise.
// Invariants: each move voids the timers of the one before (`activity`).
#pragma once

#include "runtime/sim/collectives.h"
#include "runtime/sim/refusals.h"
#include "runtime/sim/snapshots.h"
#include "runtime/sim/state_checker.h"
#include "runtime/sim/upward.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class Trainers final : public Meeters {
 public:
  Trainers(World& world, StateChecker& checker, Collectives& collectives, Snapshots& snapshots, Refusals& refusals,
           AgentInbox& agents, HandlerEnd& handlers, TrainerWatch& watch)
      : world_(world),
        state_checker_(checker),
        collectives_(collectives),
        snapshots_(snapshots),
        refusals_(refusals),
        agents_(agents),
        handlers_(handlers),
        watch_(watch) {}

  // It is there now; whatever it was at is void.
  void Go(Process* p, TrainerAt at);
  // Into the guard.
  void Park(Process* p, TrainerParked::Outcome outcome, FaultReport fault = {});
  void BeginStep(Process* p, uint64_t step);
  void Forward(Process* p, uint64_t step);
  // The gate: it is open, or it waits for the verdict of a stop.
  void PassGate(Process* p);
  void AwaitVerdict(Process* p);
  // The next piece of the update.
  void UpdateNext(Process* p);
  // The update is broken off half-way.
  void TearUpdate(Process* p, FaultReport fault);

  void OnMet(Process* p, uint64_t sum, bool tainted) override;
  void OnBroken(Process* p) override;

 private:
  void AfterForward(Process* p, uint64_t step);
  void PassBy(Process* p, uint64_t step);
  void BeginUpdate(Process* p);
  void Update(Process* p);
  bool TakeDamage(Process* p);

  World& world_;
  StateChecker& state_checker_;
  Collectives& collectives_;
  Snapshots& snapshots_;
  Refusals& refusals_;
  AgentInbox& agents_;
  HandlerEnd& handlers_;
  TrainerWatch& watch_;
};

}  // namespace kintsugi::sim
