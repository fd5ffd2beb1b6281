// EndChecker: how a run may end: success is complete, a resumable end has a checkpoint, and nothing is given up that
// could have been repaired or that anybody holds (promises 2, 5, 7, 9).
//
// Threads: none.
// Ownership: of nothing; it sees the world and changes nothing in it.
// Errors: what it finds goes to the sink.
#pragma once

#include "runtime/sim/state_checker.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class EndChecker {
 public:
  EndChecker(const World& world, StateChecker& states, Violations& sink)
      : world_(world), states_(states), sink_(sink) {}

  // The controller that is looked at ends the run: with nothing only where no step is left at which a whole copy of
  // each shard lies anywhere.
  void CheckNothingHeldIsLost(const RunEnded& ended);
  // Any layout: it goes back to what was kept of that step. `shrinks`: without ranks for which nobody may come.
  void CheckGoesBack(uint64_t back_to, bool shrinks);
  // No event is left. `ended`: the controller's last word; null: it has said none.
  void CheckEnd(const RunEnded* ended);

 private:
  bool CouldGoOnSmaller(const RunEnded& ended) const;
  void CheckOutcome(const RunEnded& ended, const std::string& end);
  bool ShardOnOneNode() const;
  void CheckFilledAgain();
  void CheckDrained(const core::RunEnded& ended, const std::string& end);
  void CheckElected(const RunEnded& ended, const std::string& end);
  // Any layout: every cell is, as one world has registered it, or as it has been cut anew and compared.
  // `live`: by ranks that live, as they registered it; what an attempt has cut in vain does not count.
  bool CellsAreHeld(uint64_t step, bool live = false) const;
  bool HoldsWhole(Rank rank, int layout, uint64_t step) const;

  const World& world_;
  StateChecker& states_;
  Violations& sink_;
};

}  // namespace kintsugi::sim
