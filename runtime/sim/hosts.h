// Hosts: where ranks' processes live and who starts them, as the parts above and below see it. One of two: OneHost,
// where one controller has a place of its own; ElectedHosts, where launchers elect which of them hosts it.
//
// Threads: none.
// Ownership: of nothing; who implements one outlives those that call it.
#pragma once

#include "runtime/sim/agents.h"
#include "runtime/sim/controllers.h"
#include "runtime/sim/network.h"
#include "runtime/sim/processes.h"

namespace kintsugi::sim {

class Hosts : public Parent, public Directory, public Relays, public Subordinates {
 public:
  // Before the controller starts, and once it has.
  virtual void Prepare() = 0;
  virtual void Begin() = 0;
  // Nobody starts or follows anything any more.
  virtual bool Over() const = 0;

 protected:
  ~Hosts() = default;
};

}  // namespace kintsugi::sim
