// Halt: the first half of an incident: LOCK, STOP, and the choice of how to repair it. A fault in any later phase comes
// back here: recovery from faults during recovery is this same path.
//
// What is waited for is a HaltState, with a table; each wait has a deadline, and only the ranks that are late when
// one runs out pay for it.
//
// Threads: none.
// Errors: as the Board's; an attempt too many ends the run.
// Invariants: each attempt has a generation of its own; nobody is stopped without the consent that a new generation
// needs; a rank that has not answered this LOCK offers nothing, nor does one that needs a repair.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/halt_state.h"
#include "runtime/core/machines.h"

namespace kintsugi::core {

class Halt : public NextAttempt {
 public:
  explicit Halt(Machines& below);

  // All ranks are locked in a new generation.
  void Lock(const std::string& reason) override;
  HaltState state() const { return state_; }
  void OnLockReply(Rank rank, const LockReply& reply);
  void OnParked(Rank rank, const Parked& parked);
  // True: what had run out was a wait for others than those that are here, and it goes on without them.
  bool OnDeadline();

  // A process was seen to have ended, ranks came back, or the witness has spoken.
  void ReconsiderMajority();
  // An attempt that rests on the witness's word ends with it, before anything else is done: what was decided since
  // would be decided by two.
  void CheckWord();
  // One more has ended, and what it left is known.
  void OnExitKnown();

 private:
  void SetState(HaltState to);
  void GoBackToCrew(const std::string& reason);
  bool LeaveRelayout(const ReplicaMap& before, const std::string& reason);
  bool Holds(Rank rank, const Crew& crew) const;
  bool IsWhole(Rank rank) const;
  bool IsGiven(Rank rank) const;
  bool HoldsAll(const ReplicaMap& map, const std::function<bool(Rank)>& holds) const;
  void TakeCut();
  bool TakeCutWhereNeeded();
  void DropCut();
  void CheckLength(const std::string& reason);
  void AfterLock();
  void AwaitMajority();
  void AskWitnessWhereItDecides();
  std::vector<LockReport> Reports() const;
  void AddHeld(std::vector<LockReport>* reports) const;
  TimePoint AwayUntil() const;
  bool AwaitAway();
  bool GiveWayToHeld();
  bool AwaitBusy();
  void Stop();
  Duration StepLimit(Rank rank) const;
  void AfterStop();
  RungDecision Decide(IncidentFacts* facts);
  void FindOlder(IncidentFacts* facts);
  void ChangeCrew(IncidentFacts* facts);
  void BeginRelayout(const Crew& crew, const IncidentFacts& facts);
  void ReloadFrom(const IncidentFacts& facts);
  void RestartStart();
  bool IsRetriedInVain();
  std::string WhyNoRung() const;

  Board& board_;
  Processes& processes_;
  RunEnd& end_;
  const Survey& survey_;
  HangWatch& hangs_;
  SnapshotRounds& rounds_;
  ControlGate& gate_;
  CheckpointList& checkpoints_;
  Repeats& repeats_;
  Scaling& scaling_;
  Saves& saves_;
  Comparison& comparison_;
  Rescue& rescue_;
  Recovery& recovery_;
  HaltState state_ = HaltState::kNone;
  std::optional<ReplicaMap> before_;  // in an attempt with another crew: the map of the crew before
  TimePoint next_word_until_;         // after the newest word of an end
};

}  // namespace kintsugi::core
