// Takeover: the controller of OneHost dies or sleeps, and another one takes over. How launchers agree on the new one is
// not shown here (ElectedHosts); this is what follows: a core that knows nothing, and an old one that may wake up.
//
// Threads: none.
// Ownership: of the core that was replaced while it slept.
// Errors: a rank that obeys it is a broken promise.
// Invariants: one controller is lost at a time.
#pragma once

#include <memory>

#include "runtime/sim/agents.h"
#include "runtime/sim/controllers.h"
#include "runtime/sim/network.h"
#include "runtime/sim/one_host.h"
#include "runtime/sim/table_checker.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class Takeover {
 public:
  Takeover(World& world, TableChecker& tables, Network& network, Agents& agents, Controllers& controllers,
           OneHost& host)
      : world_(world),
        table_checker_(tables),
        network_(network),
        agents_(agents),
        controllers_(controllers),
        host_(host) {}

  // Whether there was a controller to lose; a frozen one wakes up.
  bool Lose(bool frozen);

 private:
  void TakeOver();
  void Thaw();

  World& world_;
  TableChecker& table_checker_;
  Network& network_;
  Agents& agents_;
  Controllers& controllers_;
  OneHost& host_;
  std::unique_ptr<ControllerCore> stale_;
};

}  // namespace kintsugi::sim
