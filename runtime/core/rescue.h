// Rescue: the dump, before anything is written: what only launchers hold is adopted by processes that are
// started for nothing else, and the replicas that are left are compared, so that nothing is saved as good that is known
// to differ.
//
// A rescuer joins like any replacement and goes no further: it rebuilds no group and trains nothing. To the next
// attempt, should this one fail, it is a lost rank with a process, and its launcher holds its memory still.
//
// Threads: none.
// Errors: memory that could not be adopted is doubted, and all are locked again.
// Invariants: nobody writes before all rescuers have adopted, and what can be compared agrees.
#pragma once

#include <vector>

#include "runtime/core/board.h"
#include "runtime/core/comparison.h"
#include "runtime/core/faults.h"
#include "runtime/core/processes.h"
#include "runtime/core/saves.h"
#include "runtime/core/survey.h"

namespace kintsugi::core {

class Rescue {
 public:
  Rescue(Board& board, Processes& processes, Faults& faults, Comparison& comparison, const Survey& survey, Saves& saves)
      : board_(board),
        processes_(processes),
        faults_(faults),
        comparison_(comparison),
        survey_(survey),
        saves_(saves) {}

  // STOP is over: survivors save what they hold, and the run ends.
  void Enter();
  // An incident: a rank that was to be rescued is a lost rank again.
  void Forget() { rescued_.clear(); }
  bool Rescues(Rank rank) const;
  // With RESCUING: those that have not come, or not adopted.
  std::vector<Rank> Late() const;

  // Somebody became ready.
  void OnReady();
  // With RESCUING.
  void OnAdopted(Rank rank, const PhaseDone& done);
  // With COMPARING.
  void OnDigests(Rank rank, const PhaseDone& done);

 private:
  void Begin(const IncidentFacts& facts);
  void Compare();
  void Write();

  Board& board_;
  Processes& processes_;
  Faults& faults_;
  Comparison& comparison_;
  const Survey& survey_;
  Saves& saves_;
  std::vector<Rank> rescued_;  // lost ranks whose memory was held by launchers alone
};

}  // namespace kintsugi::core
