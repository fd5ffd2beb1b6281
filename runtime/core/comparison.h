// Comparison: the digests of replicas: asked for, compared, and remembered as a third opinion while the run stands at
// their step. In VERIFY, before a dump, between steps and at the end.
//
// Threads: none.
// Errors: a digest that is not waited for is not taken.
// Invariants: digests of ranks that have none to show are not asked for; copies that differ lock all ranks, with
// those in doubt marked, or end a run that has not begun. A wrong copy that ranks trained with is told as inexact: a stream
// mends it, and not what its gradients did to the others.
#pragma once

#include <vector>

#include "runtime/core/board.h"
#include "runtime/core/digest_verdict.h"
#include "runtime/core/faults.h"
#include "runtime/core/inexact_list.h"
#include "runtime/core/processes.h"
#include "runtime/core/run_end.h"
#include "runtime/core/snapshot_rounds.h"

namespace kintsugi::core {

class Comparison {
 public:
  Comparison(Board& board, Processes& processes, Faults& faults, RunEnd& end, const SnapshotRounds& snapshots,
             InexactList& inexact)
      : board_(board), processes_(processes), faults_(faults), end_(end), snapshots_(snapshots), inexact_(inexact) {}

  // Nobody has told its digest yet. VERIFY's orders are the caller's.
  void Begin() { digests_.assign(board_.members.seats(), {}); }
  void Take(Rank rank, const PhaseDone& done);
  // Asks all that hold something at the chosen step, outside of VERIFY. REQUIRES: Compares(state).
  void Ask(SaveState state);
  // An answer to that. True: it was the last one; the comparison is over, and the step it was made at is chosen again.
  bool OnAnswer(Rank rank, const PhaseDone& done);

  // The copies agree; where they do not, what follows has been done.
  bool Agree();
  // Where comparing was asked for, what all agreed on is kept.
  void Remember();
  // What was recorded is of a state that is no more.
  void ForgetRecord() { agreed_.clear(); }
  // The history after this step was given up.
  void ForgetAfter(Step step);
  // The newest step at which all replicas agreed, where that is kept.
  Step agreed_step() const { return agreed_step_; }
  // What was recorded of the chosen step can be compared with.
  bool HasRecord() const;
  // How each rank came to what it holds.
  std::vector<Copy> Copies() const;
  // Over every shard's digest, in the order of layouts and ranks. REQUIRES: they agree.
  uint64_t Fold() const;

 private:
  DigestVerdict Verdict() const;
  void OnMismatch(const DigestVerdict& verdict);
  void NoteWhatItReached(Rank rank);

  Board& board_;
  Processes& processes_;
  Faults& faults_;
  RunEnd& end_;
  const SnapshotRounds& snapshots_;
  InexactList& inexact_;
  Digests digests_;
  Step asked_step_;   // by Ask
  Step agreed_step_;  // with `verify_every`: the newest at which all replicas agreed, and on what
  Digests agreed_;
};

}  // namespace kintsugi::core
