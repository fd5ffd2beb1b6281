// StateChecker: what ranks, snapshots and checkpoints hold is what an undisturbed run holds there: the same step, every
// update once and whole, every sample once (promises 1, 2, 3, 5, 6).
//
// A bit that flipped unseen is followed: until the comparison that must find it, ranks may hold what was computed with
// it.
//
// Threads: none.
// Ownership: of nothing; it sees the world and what it is given, and changes neither.
// Errors: what it finds goes to the sink, the first broken promise of a check alone.
#pragma once

#include <map>
#include <set>
#include <string>

#include "runtime/sim/world.h"

namespace kintsugi::sim {

class StateChecker {
 public:
  StateChecker(const World& world, Violations& sink) : world_(world), sink_(sink) {}

  // At `step` a rank holds exactly what an undisturbed run holds there.
  void CheckState(const Process& p, uint64_t step, const std::string& when, Promise promise);
  // At the step that it has computed.
  void CheckCommit(const Process& p);
  // All of a generation are told one crew, which they are in. False: that is broken.
  bool CheckCrew(const Process& p, Generation generation, const std::shared_ptr<const core::Crew>& crew);
  // Of what was cut anew: its pieces have come; and it takes the place of what was registered before, which is freed: where all
  // of that crew were compared.
  void CheckCut(const Process& p, uint64_t step);
  void NoteCompared(const Process& p, Generation generation);
  void CheckFreed(const Process& p, Generation generation);
  void CheckRepaired(const Process& p, const RunOnTrainer& run);
  // It goes back to its loop; all of a generation do from one step.
  void CheckReleased(const Process& p, const ReleaseTrainer& release);
  // What counts as an owner's snapshot (null: nothing does) is whole where it is said to be, and of that step. Whether
  // no promise is broken.
  bool CheckSnapshot(const Process& p, Rank owner, uint64_t step, const HeldSnapshot* held);
  // By its writer, who knows who takes part: the newest leader may be another part's.
  void CheckCheckpoint(const Process& writer, uint64_t step, const Checkpoint& checkpoint);
  // A run that ended well: all were compared at its end.
  void CheckSuccess();

 private:
  void Check(const Process& p, uint64_t step, const std::string& when, Promise promise, uint64_t compared_at);
  // Whether what `p` holds at `step` cannot be held to the undisturbed run.
  bool CheckTaint(const Process& p, uint64_t step, uint64_t compared_at);

  const World& world_;
  Violations& sink_;
  // Where nobody is left who knows a generation, its number may be used again.
  std::map<std::pair<Term, Generation>, std::shared_ptr<const core::Crew>> crews_;
  std::map<std::pair<Term, Generation>, std::set<Rank>> compared_;  // where state may be cut anew
  std::map<Generation, uint64_t> released_;                         // the step that a generation goes on from
};

}  // namespace kintsugi::sim
