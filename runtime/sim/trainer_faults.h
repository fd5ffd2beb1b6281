// TrainerFaults: what a fault does to a trainer's thread: exceptions, hangs, a broken group, handlers that fail, hang
// or answer nonsense, a source that is lost while it sends.
//
// Threads: none.
// Ownership: of nothing; what befalls a thread is its process's.
#pragma once

#include "runtime/sim/collectives.h"
#include "runtime/sim/processes.h"
#include "runtime/sim/transfers.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class TrainerFaults {
 public:
  TrainerFaults(World& world, Collectives& collectives, Transfers& transfers, Processes& processes)
      : world_(world), collectives_(collectives), transfers_(transfers), processes_(processes) {}

  // Whether it is one of these, and there was something to strike. `p`: the rank's process, where it lives.
  bool Strike(const PlannedFault& fault, Process* p);

 private:
  bool Hang(const PlannedFault& fault, Process* p);
  bool StrikeSource();

  World& world_;
  Collectives& collectives_;
  Transfers& transfers_;
  Processes& processes_;
};

}  // namespace kintsugi::sim
