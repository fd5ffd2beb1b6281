// Recovery: the second half of an incident: CLEAN, ADMIT, REBUILD, REPAIR, VERIFY and ROLLBACK, and the way back to
// RUNNING. A run's start walks the same way from ADMIT on.
//
// Each phase ends when the last rank has done its part. A handler that fails for no reason of its own is an echo: the
// cause gets a moment to show itself, then all try again.
//
// Threads: none.
// Errors: a rank whose handlers fail again and again is given up; what cannot work in a new process either ends the
// start.
// Invariants: every move has a source, and none is a rank in doubt; nobody goes on before all are there and none
// needs a repair.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/core/board.h"
#include "runtime/core/checkpoint_list.h"
#include "runtime/core/comparison.h"
#include "runtime/core/faults.h"
#include "runtime/core/hang_watch.h"
#include "runtime/core/phase_times.h"
#include "runtime/core/processes.h"
#include "runtime/core/repeats.h"
#include "runtime/core/roads.h"
#include "runtime/core/run_end.h"
#include "runtime/core/saves.h"
#include "runtime/core/snapshot_orders.h"

namespace kintsugi::core {

class Recovery {
 public:
  Recovery(Board& board, Processes& processes, Faults& faults, RunEnd& end, Comparison& comparison,
           SnapshotRounds& rounds, SnapshotOrders& snapshots, HangWatch& hangs, Scaling& scaling, Saves& saves,
           CheckpointList& checkpoints, Repeats& repeats, Roads& roads);

  // STOP is over, and the way to repair is chosen.
  void Enter(const std::string& reason);
  // Makes the map of replicas of what is registered by now.
  Status MapReplicas();
  // The same, for one that took over and has heard more since of what was lost before, and what counts of the snapshots that it
  // heard of. What does not fit leaves the map as it is.
  void MapWhatIsKnown();
  // What this rank's trainer took out of its state: it is gone on all.
  void Unregister(Rank rank, const std::vector<std::string>& keys);
  // With ADMIT: somebody became ready.
  void OnReady();
  // The run waits for nothing but the processes of these ranks, and has all it needs to begin them on another node.
  bool MayMove(Rank first, int ranks) const;
  // The run waits for nothing but the processes of ranks.
  bool AwaitsProcesses() const;
  void OnDone(Rank rank, const PhaseDone& done);

  // When all try again, unless a cause shows before; Max: nothing has failed.
  TimePoint retry_at() const { return retry_.of == board_.transitions() ? retry_.at : TimePoint::Max(); }
  // That moment has come.
  void Retry();
  // All handlers of this phase ran into its limit. True: in such a phase all may hang because one does, and they are
  // cancelled together.
  bool RanOut();

  // What this attempt went by is the run's from now on.
  void SettleCrew();
  // The trainer's loop of this rank runs again.
  void OnResumed(Rank rank);
  // RUNNING goes on after a gap that healed, or untouched.
  void GoOn();

 private:
  // What has failed in the phase under way.
  struct Failed {
    TimePoint at = TimePoint::Max();
    bool ran_out = false;   // a handler's limit did
    std::string text = {};  // the first to fail, and what it said
    uint64_t of = 0;        // Board::transitions
  };
  Failed& FailedNow();

  void Admit(const std::string& reason);
  void Rebuild();
  void OnMisfit(const std::string& error);
  bool Reloads() const;
  void CheckMoves(bool reload, bool from_snapshot) const;
  void CutAnew();
  void Relayout();
  void NoteCut();
  void SettleRelayout();
  Duration RepairLimit(bool reload) const;
  void Repair();
  void Verify();
  void Rollback();
  void AfterPhase();
  void TrustAll();
  void Resume();
  void AwaitResumed();
  void LimitTheLast();
  bool GoesBack(const PhaseDone& done);
  void OnFailed(Rank rank, const PhaseDone& done);
  void DoWithout(const Roads::CutOff& cut);
  void CountFailure(Rank rank, const PhaseDone& done, bool echo);
  bool CountHandler(Rank rank, const PhaseDone& done);
  Status TakeLoaded();
  void ForgetUnregistered();
  bool AllUnregistered();

  Board& board_;
  Processes& processes_;
  Faults& faults_;
  RunEnd& end_;
  Comparison& comparison_;
  SnapshotRounds& rounds_;
  SnapshotOrders& snapshots_;
  HangWatch& hangs_;
  Scaling& scaling_;
  Saves& saves_;
  CheckpointList& checkpoints_;
  Repeats& repeats_;
  Roads& roads_;
  PhaseTimes times_;
  std::map<Rank, Step> loaded_;  // resume by the trainer's loader: what each has loaded
  Failed retry_;
  bool repair_ran_out_ = false;  // in this incident, of its limit
};

}  // namespace kintsugi::core
