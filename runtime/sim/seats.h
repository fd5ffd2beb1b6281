// Seats: a leader's side: its controller, the launchers that follow it, and the ranks' blocks that it places on nodes.
// Mirrors NodeInbox and NodeAbsence of runtime/launcher, around the real Placement and the real comparison of lives.
//
// Threads: none.
// Ownership: of nothing; seats are the world's.
// Errors: a launcher's frame that cannot be read is a broken promise.
// Invariants: what is said to a node that is away is said when it comes back.
#pragma once

#include <string>

#include "runtime/core/node_return.h"
#include "runtime/sim/controllers.h"
#include "runtime/sim/launcher_table.h"
#include "runtime/sim/lines.h"
#include "runtime/sim/node_processes.h"
#include "runtime/sim/table_checker.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class Seats final : public SeatEnds {
 public:
  Seats(World& world, TableChecker& tables, Controllers& controllers, LauncherTable& launchers, Lines& lines,
        NodeProcesses& ranks)
      : world_(world),
        table_checker_(tables),
        controllers_(controllers),
        launchers_(launchers),
        lines_(lines),
        ranks_(ranks) {}

  // What it does from time to time.
  void Pulse(Seat& seat);
  // At once, by the controller that is looked at.
  void TellPulses();
  void CheckNodes(Seat& seat);
  void MoveBlocks(Seat& seat);
  // It steps down, or is done.
  void Close(Seat& seat);

  // Of the controller that is looked at.
  void Spawn(Rank rank, Incarnation incarnation);
  // What waits for its node is not to be started any more.
  void Forget(Rank rank, Incarnation incarnation);
  void CutOff(Rank first) { world_.seat().cut_off.insert(world_.SeatedNodeOf(first)); }
  bool SendTo(int node, const wire::NodeOrder& order);
  void OnRunEnded();

  void OnWord(NodeLine* line, const std::string& bytes) override;
  // The seat's end is gone.
  void CloseLine(NodeLine* line);

 private:
  void OnHello(NodeLine* line, const wire::NodeHello& hello);
  void FoundLives(const core::RankBlock& block, const core::LivesThere& lives);
  void ComparedLives(int node, const core::RankBlock& block, const core::LivesThere& lives);
  int SparesHere(const Seat& seat) const;
  core::RankBlock BlockOf(int block) const;
  void TellPlacesAway(Seat& seat);
  void DoWithout(Seat& seat, int node, TimePoint lost_at);

  World& world_;
  TableChecker& table_checker_;
  Controllers& controllers_;
  LauncherTable& launchers_;
  Lines& lines_;
  NodeProcesses& ranks_;
};

}  // namespace kintsugi::sim
