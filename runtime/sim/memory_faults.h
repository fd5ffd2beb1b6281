// MemoryFaults: what a fault does to a rank's memory: damage that the device tells of, bits that flip and nobody tells.
//
// Threads: none.
// Ownership: of nothing; what is damaged is its process's.
// Invariants: no two ranks' bits that flip unseen are alike: alike, they would be no flips to a comparison.
#pragma once

#include "runtime/sim/processes.h"
#include "runtime/sim/rot.h"
#include "runtime/sim/trainers.h"
#include "runtime/sim/transfers.h"
#include "runtime/sim/upward.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class MemoryFaults {
 public:
  MemoryFaults(World& world, Rot& rot, HeldMemory& held, Trainers& trainers, Transfers& transfers, Processes& processes,
               AgentInbox& agents)
      : world_(world),
        rot_(rot),
        held_(held),
        trainers_(trainers),
        transfers_(transfers),
        processes_(processes),
        agents_(agents) {}

  // Whether it is one of these, and there was something to strike. `p`: the rank's process, where it lives.
  bool Strike(const PlannedFault& fault, Process* p);
  // Met at once where the rank is in its update, else later.
  void Damage(Process* p, bool low);
  void OnPhase(Phase phase);

 private:
  bool StrikeSilently(Process* p);
  void TakeBackFlips();

  World& world_;
  Rot& rot_;
  HeldMemory& held_;
  Trainers& trainers_;
  Transfers& transfers_;
  Processes& processes_;
  AgentInbox& agents_;
};

}  // namespace kintsugi::sim
