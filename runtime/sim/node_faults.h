// NodeFaults: what strikes launchers and the roads between nodes, where launchers elect who leads; elsewhere nothing.
//
// Threads: none.
// Ownership: of nothing.
// Invariants: a rank that is disturbed may be taken for lost, by one part or another: all ranks are.
#pragma once

#include "runtime/sim/collectives.h"
#include "runtime/sim/controllers.h"
#include "runtime/sim/election_checker.h"
#include "runtime/sim/electors.h"
#include "runtime/sim/followers.h"
#include "runtime/sim/launcher_table.h"
#include "runtime/sim/lines.h"
#include "runtime/sim/network.h"
#include "runtime/sim/node_processes.h"
#include "runtime/sim/seats.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class NodeFaults {
 public:
  NodeFaults(World& world, ElectionChecker& checker, Network& network, Collectives& collectives,
             Controllers& controllers, LauncherTable& launchers, Lines& lines, NodeProcesses& ranks, Seats& seats,
             Followers& followers, Electors& electors)
      : world_(world),
        election_checker_(checker),
        network_(network),
        collectives_(collectives),
        controllers_(controllers),
        launchers_(launchers),
        lines_(lines),
        ranks_(ranks),
        seats_(seats),
        followers_(followers),
        electors_(electors) {}

  // Whether it is one of these, and there was something to strike.
  bool Strike(const PlannedFault& fault);

 private:
  bool Drain(int rank);
  bool Scale(int ranks, int again);
  bool AskToStop(Launcher& l);
  void CheckStopIsHeard(const Launcher& l);
  bool LoseLauncher(Launcher& l, bool host_gone, bool comes_back);
  void Restart(Launcher& l);
  bool Freeze(Launcher& l, Duration length);
  bool Cut(const PlannedFault& fault);
  bool CloseRoads(const PlannedFault& fault);
  // Keepalive: the controller's end finds out.
  void CloseLater(NodeLine* line, Duration keepalive);

  World& world_;
  ElectionChecker& election_checker_;
  Network& network_;
  Collectives& collectives_;
  Controllers& controllers_;
  LauncherTable& launchers_;
  Lines& lines_;
  NodeProcesses& ranks_;
  Seats& seats_;
  Followers& followers_;
  Electors& electors_;
};

}  // namespace kintsugi::sim
