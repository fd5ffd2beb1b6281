// Relayouts: state that is cut anew for another crew. In REBUILD each rank says what it is to hold, in REPAIR the agents' own plan
// moves every piece there, from ROLLBACK on that is used, and once the run goes on it is what is registered. Mirrors
// runtime/agent/next_state and integrations/cpp/move_pieces.
//
// Threads: none.
// Ownership: of each generation's session; what is to come is its process's.
// Errors: a plan that is refused, and a piece that its source does not hold, are broken promises.
// Invariants: what was registered before is not written; a member that leaves ends the session for all.
#pragma once

#include <map>
#include <vector>

#include "runtime/sim/held_memory.h"
#include "runtime/sim/snapshots.h"
#include "runtime/sim/state_checker.h"
#include "runtime/sim/upward.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class Relayouts {
 public:
  Relayouts(World& world, StateChecker& checker, HeldMemory& held, Snapshots& snapshots, HandlerEnd& handlers)
      : world_(world), state_checker_(checker), held_(held), snapshots_(snapshots), handlers_(handlers) {}

  // The process takes an order.
  void Settle(Process* p);
  // It runs REBUILD, and says what it is to hold in this crew.
  void Take(Process* p);
  // It runs REPAIR, and takes part in its generation's session.
  void Move(Process* p);
  // Its VERIFY is over.
  void OnVerified(Process* p);
  // The run goes on. Whether something else is registered from here on.
  bool Keep(Process* p);
  // Its handler is over, or it is.
  void Leave(Process* p);

  // For faults: a process that is giving pieces away in that generation, null: none is.
  Process* SourceIn(Generation generation) const;

 private:
  struct Session {
    std::map<Rank, Process*> members;
    std::map<std::pair<Rank, Rank>, std::vector<PieceMove>> moves;  // by pair, last one first
    std::map<Rank, std::vector<RankState>> recalled;                // by who brings it
    size_t left = 0;
    bool began = false, over = false;
  };
  void Swap(Process* p);
  void Drop(Process* p);
  bool AllHere(const Process* p, const Session& session) const;
  // What the source brings of the snapshot to which all go back.
  std::vector<ShardedTensor> Recall(Process* source, uint64_t step);
  void Begin(Generation generation);
  void MoveNext(Generation generation, std::pair<Rank, Rank> pair);
  void Carry(const PieceMove& move, const Process& from, Process* to, const std::vector<RankState>& recalled);
  void End(Generation generation);

  World& world_;
  StateChecker& state_checker_;
  HeldMemory& held_;
  Snapshots& snapshots_;
  HandlerEnd& handlers_;
  std::map<Generation, Session> sessions_;
};

}  // namespace kintsugi::sim
