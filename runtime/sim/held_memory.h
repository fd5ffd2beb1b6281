// HeldMemory: memory that outlives its process. What a process leaves, its launcher holds until the one that replaces
// it is in its loop. Mirrors runtime/launcher/held_memory and runtime/agent/state_offer.
//
// Threads: none.
// Ownership: what is held is the world's (`World::left`): checkers look at it.
// Invariants: a process whose state is marked holds its rank's memory itself; its launcher then holds none.
#pragma once

#include <string>

#include "runtime/sim/rot.h"
#include "runtime/sim/world.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi::sim {

class HeldMemory {
 public:
  HeldMemory(World& world, Rot& rot) : world_(world), rot_(rot) {}

  // What the process's own memory is good for from now on.
  void Mark(Process* p, core::StateMark mark);
  // A process was reaped: this is what its launcher holds of it.
  void Hold(const Process* p, const std::string& cause);
  // As a launcher tells it: before it says that the process ended, and again to a controller that takes over. With what
  // that process had registered.
  wire::NodeHeld HeldOf(Rank rank) const;
  // Nothing is streamed: the bytes are there. False: they are not.
  bool Adopt(Process* p);

 private:
  World& world_;
  Rot& rot_;
};

}  // namespace kintsugi::sim
