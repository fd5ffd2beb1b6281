// ConnectionFaults: what a fault does to a rank's connection and its road, and frames that do not belong.
//
// Threads: none.
// Ownership: of nothing.
// Invariants: what does not last ends, with the longest pause before the next attempt to connect and a beat, within the
// silence limit.
#pragma once

#include "runtime/sim/network.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class ConnectionFaults {
 public:
  ConnectionFaults(World& world, Network& network) : world_(world), network_(network) {}

  // Whether it is one of these, and there was something to strike. `p`: the rank's process, where it lives.
  bool Strike(const PlannedFault& fault, Process* p);

 private:
  bool SendBadFrame(Process* p, int kind);

  World& world_;
  Network& network_;
};

}  // namespace kintsugi::sim
