// ElectedHosts: several nodes with a launcher each, which elect who hosts the controller (profiles `elections`, `away`,
// `spare_nodes`). Whatever an agent and its controller say passes through the agent's launcher.
//
// Threads: none.
// Ownership: of nothing; it joins what launchers, seats and elections do to what the other parts see of hosts.
// Invariants: what a launcher that sleeps would do waits; what one that has ended would do is lost.
#pragma once

#include <string>

#include "runtime/sim/controllers.h"
#include "runtime/sim/electors.h"
#include "runtime/sim/hosts.h"
#include "runtime/sim/launcher_table.h"
#include "runtime/sim/node_processes.h"
#include "runtime/sim/seats.h"

namespace kintsugi::sim {

class ElectedHosts final : public Hosts {
 public:
  ElectedHosts(World& world, TableChecker& tables, Network& network, Agents& agents, Controllers& controllers,
               LauncherTable& launchers, NodeProcesses& ranks, Seats& seats, Electors& electors)
      : world_(world),
        table_checker_(tables),
        network_(network),
        agents_(agents),
        controllers_(controllers),
        launchers_(launchers),
        ranks_(ranks),
        seats_(seats),
        electors_(electors) {}

  void Prepare() override { electors_.Begin(); }
  void Begin() override;
  bool Over() const override { return launchers_.Over(); }
  void Spawn(Rank rank, Incarnation incarnation) override { seats_.Spawn(rank, incarnation); }
  void Kill(const KillProcess& kill) override;
  void CutOff(Rank first) override { seats_.CutOff(first); }
  void OnPhase(Phase phase) override;
  void OnRunEnded() override { seats_.OnRunEnded(); }
  void OnBooted(Process* p) override;
  void OnExited(Process* p, const std::string& cause) override { ranks_.Reap(p, cause); }
  Answer ControllerOf(const Process* p) override;
  bool Relay(Connection* connection, bool up, const std::string& frame) override;
  bool RelayLoss(Connection* connection, bool told) override;

 private:
  void Tick();
  // Its page, which its launcher reads.
  void Beat(Process* p);

  World& world_;
  TableChecker& table_checker_;
  Network& network_;
  Agents& agents_;
  Controllers& controllers_;
  LauncherTable& launchers_;
  NodeProcesses& ranks_;
  Seats& seats_;
  Electors& electors_;
};

}  // namespace kintsugi::sim
