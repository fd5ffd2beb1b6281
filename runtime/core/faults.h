// Faults: what is told as broken: the incident is opened or joined, its ranks are replaced, and all others are locked.
//
// A machine that finds a fault tells it here, in any phase: recovery from faults during recovery is this same
// path.
//
// Threads: none.
// Errors: as the Board's.
// Invariants: one attempt for all ranks that are given up together; what a fault in RUNNING interrupts has an
// incident of its own.
#pragma once

#include <string>
#include <vector>

#include "runtime/core/board.h"
#include "runtime/core/processes.h"
#include "runtime/core/repeats.h"
#include "runtime/core/run_end.h"
#include "runtime/core/snapshot_rounds.h"

namespace kintsugi::core {

// What a machine asks for whose work cannot go on: all ranks are locked in a new generation, and the repair is chosen
// anew. The machine that does it stands above those that ask.
class NextAttempt {
 public:
  // REQUIRES: an incident is under way.
  virtual void Lock(const std::string& reason) = 0;

 protected:
  ~NextAttempt() = default;
};

class Faults {
 public:
  Faults(Board& board, Processes& processes, RunEnd& end, SnapshotRounds& snapshots, Repeats& repeats)
      : board_(board), processes_(processes), end_(end), snapshots_(snapshots), repeats_(repeats) {}
  // The machine that locks all ranks stands above this one, and is made after it. Before the first event.
  void SetNext(NextAttempt& next) { next_ = &next; }

  // What a rank's agent says of it. `current`: in this generation.
  void OnReport(Rank rank, const FaultReport& report, bool current);
  // When a fault began, by what is told with it. An instant from before the run last went on is of an older fault, which
  // was repaired: an injector's stamp stays in its process's page.
  TimePoint BeganAt(TimePoint told) const;

  // A signal that proves nothing by itself (a lost connection, a failed collective): opens CONFIRM where nothing else
  // is under way.
  void Suspect(Rank rank, FaultKind kind, const std::string& text, TimePoint since);
  // A fault: goes to LOCK with a new attempt.
  void Fault(Rank rank, FaultKind kind, const std::string& text, TimePoint since);
  // The bookkeeping of a fault; the caller goes on to LOCK.
  void Record(Rank rank, FaultKind kind, const std::string& text, TimePoint since);
  // Kills the ranks: one attempt for all of them.
  void GiveUp(const std::vector<Rank>& ranks, FaultKind kind, TimePoint since, const std::string& text);
  // An incident begins, without a phase of its own yet. REQUIRES: none is under way.
  void Open(Rank rank, FaultKind kind, const std::string& text, TimePoint since);
  // ... that is nobody's fault, and in which all are locked at once.
  void OpenBlamingNobody(FaultKind kind, const std::string& text, TimePoint since);
  void Lock(const std::string& reason);

 private:
  void NoteDamage(Rank rank, const FaultReport& report);

  Board& board_;
  Processes& processes_;
  RunEnd& end_;
  SnapshotRounds& snapshots_;
  Repeats& repeats_;
  NextAttempt* next_ = nullptr;  // once it is made
};

}  // namespace kintsugi::core
