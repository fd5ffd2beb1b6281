// Followers: a launcher and the leader that it follows: its line, the orders it takes over it, the pages it tells.
// Mirrors LeaderConnection, LocalBlock and NodeReporter of runtime/launcher.
//
// Threads: none.
// Ownership: of nothing; launchers are the table's.
// Errors: an order that cannot be read, or is of an older term than one that was obeyed, is a broken promise.
// Invariants: nothing but a welcome is obeyed on a new line.
#pragma once

#include <string>

#include "runtime/sim/agents.h"
#include "runtime/sim/election_checker.h"
#include "runtime/sim/held_memory.h"
#include "runtime/sim/launcher_table.h"
#include "runtime/sim/lines.h"
#include "runtime/sim/network.h"
#include "runtime/sim/node_processes.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class Followers final : public LauncherEnds {
 public:
  Followers(World& world, ElectionChecker& checker, Network& network, HeldMemory& held, Agents& agents,
            LauncherTable& launchers, Lines& lines, NodeProcesses& ranks)
      : world_(world),
        election_checker_(checker),
        network_(network),
        held_(held),
        agents_(agents),
        launchers_(launchers),
        lines_(lines),
        ranks_(ranks) {}

  // It follows that controller from now on.
  void ConnectTo(Launcher& l, Term term, Seat* seat);
  // Without a sign of life for too long the line is given up.
  void CheckLine(Launcher& l);
  void TellPages(Launcher& l);
  // The whole run is to save and end: its leader is told, or the next one.
  void AskToStop(Launcher& l);
  // Where the ranks live, by what it hears from anybody. Whether that is news.
  bool Learn(Launcher& l, core::Placement placement);

  void OnOrder(NodeLine* line, const std::string& bytes) override;

 private:
  void Dial(Launcher& l);
  void TryDial(Launcher& l);
  void Disconnect(Launcher& l, const std::string& why);
  void OnWelcome(Launcher& l);
  void OnPlacement(Launcher& l, const core::Placement& placement);

  World& world_;
  ElectionChecker& election_checker_;
  Network& network_;
  HeldMemory& held_;
  Agents& agents_;
  LauncherTable& launchers_;
  Lines& lines_;
  NodeProcesses& ranks_;
};

}  // namespace kintsugi::sim
