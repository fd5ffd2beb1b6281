// RepairPlan: where all ranks are to stand, and how they get there, as far as this attempt has chosen it.
//
// Threads: none; plain data.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/ladder.h"
#include "runtime/core/policy.h"

namespace kintsugi::core {

struct RepairPlan {
  StepChoice choice;  // also the step of what is compared or saved outside of an incident
  RungDecision decision;
  std::vector<RepairMove> moves;
  std::vector<Rank> replaced;        // whose process is a new one, in this attempt: the first ones
  Checkpoint reload;                 // with the rung reload: fixed when it was chosen
  bool reload_snapshot = false;      // ... or with relayout: the in-memory snapshot of choice.step instead
  std::optional<Step> suspect_from;  // updates from this one on may hold damage that was found later
  // The ranks leave out what comes from this step on, where they went on behind it: the run goes back to before it, as far as
  // there is something to go back to.
  std::optional<Step> back_from;
  std::optional<Step>
      reload_before;  // a reload is from what is older than this step, in this attempt; none: from the newest
  // The crew that state is cut anew for, until the run goes on. Meanwhile who leaves takes part, too, to give away what it
  // holds, and nothing that was registered before is written.
  std::optional<Crew> relayout;
  std::vector<Rank> holders;  // with it: whose state, or snapshot, is that of choice.step
  // Of this incident: what was cut anew, and agreed. Until they carry out an order that says otherwise ranks hold it beside what
  // was registered before.
  struct Cut {
    Crew crew;
    Generation generation;
    ReplicaMap map;
    std::vector<Rank> given;  // of those that hold nothing of what was registered before, whom nothing has struck since
  };
  std::optional<Cut> cut;
  // Of this incident: attempts to cut the state anew that came to nothing, and why the last one did.
  int relayouts_failed = 0;
  std::string relayout_failure;

  // The rank maps the memory of the process before it.
  bool Adopts(Rank rank) const {
    return std::any_of(moves.begin(), moves.end(),
                       [rank](const RepairMove& move) { return move.adopt && move.destination == rank; });
  }
  // REPAIR is a reload of the in-memory snapshot.
  bool ReloadsSnapshot() const { return decision.rung == Rung::kReload && reload_snapshot; }
  // REPAIR takes from it what it brings.
  bool FromSnapshot() const { return reload_snapshot && (decision.rung == Rung::kReload || relayout); }
  bool IsSuspect(Step step) const { return suspect_from && step >= *suspect_from; }
  // An incident knows nothing of the one before it.
  void Clear() {
    decision = {};
    choice = {};
    moves.clear();
    back_from.reset();
    relayouts_failed = 0;
    cut.reset();
  }
};

}  // namespace kintsugi::core
