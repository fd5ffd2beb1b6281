// Spares: warm processes that wait on each node. Mirrors runtime/launcher/spare_pool: until one is taken it is no more
// than a number, which the controller is told some time after it has changed.
//
// Threads: none.
// Ownership: of the numbers.
// Invariants: none wait before the run first runs; one that was taken is replaced.
#pragma once

#include <vector>

#include "runtime/sim/upward.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class Spares {
 public:
  Spares(World& world, ControllerInbox& controller) : world_(world), controller_(controller) {}

  // The run runs; once.
  void Begin();
  // Whether one of its node becomes the rank.
  bool Take(Rank rank);
  // To a controller that takes over.
  void TellAgain(int node);

 private:
  void Start(int node);
  void Tell(int node);

  World& world_;
  ControllerInbox& controller_;
  std::vector<int> waiting_;  // by node; empty before the run first runs
};

}  // namespace kintsugi::sim
