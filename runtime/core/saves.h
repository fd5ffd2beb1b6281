// Saves: what is done where all ranks are parked between steps: periodic saves, saves and pauses that somebody asked
// for, comparisons, the stop, and the end of training.
//
// An incident ends a save and a pause; both are made up for once the run goes on. What is asked for and overtaken by
// the end of training is saved there. A pause uses the save points: all park at one boundary and stay. A save that is
// asked for meanwhile is made there. Where a new process was asked for, the old one goes there too, in place of leaving the boundary. A pause ends with its controller: one that takes the run over has not heard of it.
//
// Threads: none.
// Errors: a save that fails is told, and the run goes on; the last one is tried three times.
// Invariants: each request is answered; where replicas are compared between steps, nothing is saved that was not.
#pragma once

#include <optional>
#include <string>

#include "runtime/core/board.h"
#include "runtime/core/checkpoint_writer.h"
#include "runtime/core/comparison.h"
#include "runtime/core/faults.h"
#include "runtime/core/pending_save.h"
#include "runtime/core/replacements.h"
#include "runtime/core/run_end.h"
#include "runtime/core/save_points.h"
#include "runtime/core/scaling.h"
#include "runtime/core/survey.h"

namespace kintsugi::core {

class Saves {
 public:
  Saves(Board& board, RunEnd& end, Faults& faults, Comparison& comparison, const Survey& survey, Scaling& scaling,
        HangWatch& hangs, CheckpointList& checkpoints, const Repeats& repeats);

  // What an operator asks for. `then_end`: the run leaves.
  void Request(bool then_end);
  void AskForPause();
  void AskToContinue();
  // A new process for a rank, once all stand where that costs nothing.
  void AskToReplace(Rank rank);
  // ... for all ranks of a node, on another one.
  void AskToDrain(Rank first, int ranks);
  // So many ranks are to take part, from the end of a step on.
  void AskToScale(int ranks);
  void OnMoved(Rank first) { replacements_.Moved(first); }
  const Replacements& replacements() const { return replacements_; }
  bool pause_asked() const { return pause_asked_; }
  // The step at which all stand, once they do.
  std::optional<Step> paused_at() const;
  const SavePoints& points() const { return points_; }

  // The run goes on: whatever waited for that is begun, a save, a stop or a pause.
  void BeginRequested();
  // An incident.
  void Cancel();
  // The next save is the run's last.
  void EndAfterNext() { end_after_save_ = true; }
  // ... and is begun, in DUMP, where nobody is parked in its loop.
  void Write(Step step, const IncidentFacts& facts);

  // A rank that joined again is told what it may have missed.
  void TellAgain(Rank rank) { points_.TellAgain(rank); }
  void OnPauseAck(Rank rank, const PauseAck& ack);
  void OnParked(Rank rank, Step step);
  // All have come to the end of their loops, or others wait for this one.
  void MaybeFinish();
  // With Writes(save).
  void OnWritten(Rank rank, const PhaseDone& done);
  // ... which takes too long. STOP frees whoever only waits; who does not come out of it is the one.
  void RanOut();
  // With VERIFYING and FINAL_VERIFY.
  void OnDigests(Rank rank, const PhaseDone& done);
  void OnPublished(Step step, const std::string& directory) { writer_.OnPublished(step, directory); }
  // Call at every tick. True: the grace period of a stop is nearly over, and all are locked to save at once.
  bool CheckGrace();
  // ... where no boundary comes for one that is to be replaced, or for another number of ranks.
  void CheckReplacements();

 private:
  // Empty: replicas are compared at the end.
  std::string WhyNotCompared(Step last) const;
  void BeginPause();
  bool StaysPaused();
  void SaveWhilePaused();
  void BeginReplacing();
  bool Replaces();
  bool Scales();
  void StandAt(Step step);
  void RefuseReplacement(const std::string& why);
  void MaybeSave();
  void Compare(SaveState state);
  void LeavePoints();
  void OnLastFailed(Rank rank);
  void Finish();
  void Settle();

  Board& board_;
  RunEnd& end_;
  Faults& faults_;
  Comparison& comparison_;
  const Survey& survey_;
  Scaling& scaling_;
  const Repeats& repeats_;
  SavePoints points_;
  CheckpointWriter writer_;
  PendingSave request_;
  Replacements replacements_;
  TimePoint stop_deadline_ = TimePoint::Max();
  bool end_after_save_ = false;
  int last_save_failures_ = 0;
  bool gathers_to_save_ = false;  // with ARMING and GATHERING: not for a pause alone
  bool pause_asked_ = false;      // outlives incidents: the run pauses again after one
  Step paused_step_;              // with PAUSED
  bool save_after_verify_ = false;
  Step verified_step_;  // since the last incident, the newest at which all replicas agreed outside of one
};

}  // namespace kintsugi::core
