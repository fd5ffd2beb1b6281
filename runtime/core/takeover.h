// RunTakeover: a controller that takes a run over knows nothing but its policy: agents and launchers say where the
// run stands. While it listens (CONFIRM) it orders nothing. Where every rank turns out to be in its loop, in one
// generation, the run was never disturbed and goes on as it is; anything else is an incident, and goes to LOCK.
//
// Threads: none.
// Errors: as the Board's.
// Invariants: it listens once, for one confirmation window at most; its generations are above every one that was
// heard of.
#pragma once

#include "runtime/core/machines.h"

namespace kintsugi::core {

class RunTakeover {
 public:
  explicit RunTakeover(Machines& below)
      : board_(below.board),
        processes_(below.processes),
        faults_(below.faults),
        recovery_(below.recovery),
        saves_(below.saves),
        checkpoints_(below.checkpoints) {}

  bool listening() const { return board_.course.listening; }
  void Begin();
  // A launcher says that this process runs.
  void OnFound(const ProcessFound& found);
  // A process that knows no generation yet: whether it is a replacement is not known before the others have spoken, and
  // its driver asks again.
  void HoldBack(Rank rank);
  // What a process says of itself, before it has a place among the members.
  void TakeStanding(Rank rank, const Header& header, const JoinRequest& join);
  // Somebody has spoken, or is known to say nothing any more: the last one there was?
  void Reconsider();
  // Nobody else is waited for.
  void Conclude();

 private:
  void TakeCrew(Rank rank, const JoinRequest& join);
  bool HasSpoken(const Member& member) const;
  bool IsUndisturbed() const;
  void TellCrew();
  void GiveUpAbsent();

  Board& board_;
  Processes& processes_;
  Faults& faults_;
  Recovery& recovery_;
  Saves& saves_;
  CheckpointList& checkpoints_;
  Generation crew_since_;  // of the newest crew that was heard of
};

}  // namespace kintsugi::core
