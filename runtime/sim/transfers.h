// Transfers: REPAIR: chunks go from sources to receivers, several sources may serve one receiver, and what has arrived
// outlives the generation: only missing chunks are sent again. A reload from memory takes what a rank holds of its own
// snapshot, and the rest from others.
//
// Threads: none.
// Ownership: of each generation's session; what has arrived is its process's.
// Invariants: a receiver's tensor is neither its old nor its new self while a chunk of it is under way; a member that
// leaves costs its receivers a source, or their repair.
#pragma once

#include <map>
#include <vector>

#include "runtime/sim/held_memory.h"
#include "runtime/sim/relayouts.h"
#include "runtime/sim/rot.h"
#include "runtime/sim/snapshots.h"
#include "runtime/sim/state_checker.h"
#include "runtime/sim/upward.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class Transfers {
 public:
  Transfers(World& world, StateChecker& checker, Rot& rot, HeldMemory& held, Snapshots& snapshots, Relayouts& relayouts,
            HandlerEnd& handlers)
      : world_(world),
        state_checker_(checker),
        rot_(rot),
        held_(held),
        snapshots_(snapshots),
        relayouts_(relayouts),
        handlers_(handlers) {}

  // The process runs REPAIR, and takes part in its generation's session.
  void Repair(Process* p);
  void ReloadFromMemory(Process* p);
  // Its handler is over, or it is.
  void Leave(Process* p);

  // For faults: a process that is sending in that generation, null: none is; and bits that will flip in what repairs
  // receive.
  Process* SourceIn(Generation generation) const;
  void FlipNext(int count) { flips_left_ += count; }

 private:
  struct Transfer {
    RepairMove move;
    Process* source = nullptr;
    bool done = false;
  };
  struct Session {
    std::map<Rank, Process*> members;
    std::vector<Transfer> transfers;
  };
  void Push(Generation generation);
  void SendChunk(Generation generation, size_t i, size_t chunk);
  void TakeChunk(Process* p, const Transfer& transfer, size_t chunk);
  void RecallObjects(Process* p);
  void EndTransfer(Process* p, Transfer& transfer);
  void LeaveTransfer(Process* p, Session& session, Transfer& transfer);

  World& world_;
  StateChecker& state_checker_;
  Rot& rot_;
  HeldMemory& held_;
  Snapshots& snapshots_;
  Relayouts& relayouts_;
  HandlerEnd& handlers_;
  std::map<Generation, Session> sessions_;
  int flips_left_ = 0;
};

}  // namespace kintsugi::sim
