// Faults: the planned faults of a run, and when each strikes: at an instant, when the controller enters a phase for the
// nth time, or when a rank's trainer comes to a place in a step. What a fault does is for those below to know.
//
// Threads: none.
// Ownership: of the planned faults.
// Invariants: a fault strikes once; one that finds nothing to strike has not struck.
#pragma once

#include <map>
#include <vector>

#include "runtime/sim/connection_faults.h"
#include "runtime/sim/hosts.h"
#include "runtime/sim/memory_faults.h"
#include "runtime/sim/node_faults.h"
#include "runtime/sim/process_faults.h"
#include "runtime/sim/trainer_faults.h"
#include "runtime/sim/upward.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class Faults final : public TrainerWatch, public PhaseWatch {
 public:
  Faults(World& world, Hosts& hosts, NodeFaults& nodes, ProcessFaults& processes, TrainerFaults& trainers,
         MemoryFaults& memory, ConnectionFaults& connections);

  // The run begins.
  void Begin();
  void OnPhase(Phase phase) override;
  void OnTrainerAt(Process* p) override;

 private:
  struct Fault {
    PlannedFault plan;
    bool fired = false;
    bool armed = true;  // waits for its place in the trainer
  };
  void Strike(Fault& fault);

  World& world_;
  Hosts& hosts_;
  NodeFaults& nodes_;
  ProcessFaults& processes_;
  TrainerFaults& trainers_;
  MemoryFaults& memory_;
  ConnectionFaults& connections_;
  std::vector<Fault> faults_;
  std::map<Phase, int> entered_;  // how often
};

}  // namespace kintsugi::sim
