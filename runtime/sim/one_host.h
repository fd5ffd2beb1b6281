// OneHost: one controller in a place of its own. Its launcher starts and reaps processes, as runtime/launcher does;
// where the policy has none, a supervisor that knows nothing of ranks' incarnations starts every process again when it
// has ended.
//
// Threads: none.
// Ownership: of who is to be started next.
// Invariants: a victim is reaped before its successor starts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/sim/controllers.h"
#include "runtime/sim/held_memory.h"
#include "runtime/sim/hosts.h"
#include "runtime/sim/spares.h"

namespace kintsugi::sim {

class OneHost final : public Hosts {
 public:
  OneHost(World& world, TableChecker& tables, Network& network, HeldMemory& held, Spares& spares, Processes& processes,
          Agents& agents, Controllers& controllers)
      : world_(world),
        table_checker_(tables),
        network_(network),
        held_(held),
        spares_(spares),
        processes_(processes),
        agents_(agents),
        controllers_(controllers),
        next_(world.size) {}

  // A launcher's first words to a controller: which of its processes run.
  void TellOfProcesses(int node);

  void Prepare() override {}
  void Begin() override;
  bool Over() const override { return world_.seat().ended.has_value(); }
  void Spawn(Rank rank, Incarnation incarnation) override;
  void Kill(const KillProcess& kill) override;
  void CutOff(Rank /*first*/) override {}  // there is no other
  void OnPhase(Phase phase) override;
  void OnRunEnded() override;
  void OnBooted(Process* p) override;
  void OnExited(Process* p, const std::string& cause) override;
  Answer ControllerOf(const Process* p) override;
  bool Relay(Connection*, bool, const std::string&) override { return false; }
  bool RelayLoss(Connection*, bool) override { return false; }

 private:
  void Tick();
  void Start(Rank rank, Incarnation incarnation);
  void Beat(Process* p);
  void EndStragglers();

  World& world_;
  TableChecker& table_checker_;
  Network& network_;
  HeldMemory& held_;
  Spares& spares_;
  Processes& processes_;
  Agents& agents_;
  Controllers& controllers_;
  std::vector<std::optional<Incarnation>> next_;  // by rank: to be started once the one before is reaped
};

}  // namespace kintsugi::sim
