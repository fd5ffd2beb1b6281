// NodeProcesses: the ranks' processes of each node, as its launcher starts, ends and reaps them by the word of the
// controller that it follows.
//
// Threads: none.
// Ownership: of who is to be started next.
// Errors: a process that is to start with an incarnation that is not newer, on whatever node, is a broken promise. What
// was begun under a newer term does not count: a part may have done so on the node that had the rank before.
// Invariants: a victim is reaped before its successor starts there; a launcher that has left starts nobody.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "runtime/sim/held_memory.h"
#include "runtime/sim/launcher_table.h"
#include "runtime/sim/lines.h"
#include "runtime/sim/processes.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class NodeProcesses {
 public:
  NodeProcesses(World& world, HeldMemory& held, Processes& processes, LauncherTable& launchers, Lines& lines)
      : world_(world), held_(held), processes_(processes), launchers_(launchers), lines_(lines) {}

  void Spawn(Launcher& l, Rank rank, Incarnation incarnation);
  void Kill(Launcher& l, Rank rank, Incarnation incarnation);
  void Reap(Process* p, const std::string& cause);
  // Those of a node whose ranks another one has now.
  void KillAll(Launcher& l);
  // Those of a launcher that ends, or whose host is gone.
  void EndAll(Launcher& l);
  // The launcher leaves, and what is still there after a while is ended.
  void Leave(Launcher& l);

 private:
  void Start(Launcher& l, Rank rank, Incarnation incarnation);
  std::optional<Incarnation>& NextOn(int node, Rank rank) { return next_[{node, rank.value()}]; }

  World& world_;
  HeldMemory& held_;
  Processes& processes_;
  LauncherTable& launchers_;
  Lines& lines_;
  std::map<std::pair<int, int>, std::optional<Incarnation>> next_;  // by node and rank
  std::map<Rank, std::map<uint64_t, Incarnation>> newest_;          // that began, by term
};

}  // namespace kintsugi::sim
