// ProcessFaults: what a fault does to whole processes: one, a node's, a shard's, the next that replaces one, the
// controller's; and what an operator asks for.
//
// Threads: none.
// Ownership: of nothing; what befalls replacements is Processes'.
#pragma once

#include "runtime/sim/memory_faults.h"
#include "runtime/sim/processes.h"
#include "runtime/sim/takeover.h"
#include "runtime/sim/upward.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class ProcessFaults {
 public:
  ProcessFaults(World& world, Processes& processes, ControllerInbox& controllers, Takeover& takeover,
                MemoryFaults& memory)
      : world_(world), processes_(processes), controllers_(controllers), takeover_(takeover), memory_(memory) {}

  // Whether it is one of these, and there was something to strike. `p`: the rank's process, where it lives.
  bool Strike(const PlannedFault& fault, Process* p);

 private:
  // Asked again while it is refused, for a second or so.
  bool Scale(int ranks, int again);
  bool LoseNode(int rank);
  bool LoseGroup(int rank);
  bool StrikeReplacement(const PlannedFault& fault, Process* p);

  World& world_;
  Processes& processes_;
  ControllerInbox& controllers_;
  Takeover& takeover_;
  MemoryFaults& memory_;
};

}  // namespace kintsugi::sim
