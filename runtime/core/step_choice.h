// ChooseStep: the step S at which all live ranks meet. One pure function for runs with and without the gate.
//
// Source of the rule: the gate (docs/protocol.md). With the gate, one live rank in update k means that every live rank can
// finish k alone.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "runtime/core/gate_word.h"
#include "runtime/core/replica_map.h"

namespace kintsugi::core {

// One live rank's answer to LOCK, or what a launcher holds of a dead one. Other dead ranks are never in the list.
struct LockReport {
  Rank rank;
  GateState state = GateState::kCommitted;
  Step step;
  bool valid = true;      // false: the state is no step's (torn, damaged, being repaired); it offers nothing
  bool doubtful = false;  // counts only beside a second copy that can contradict it
};

enum class StepReason {
  kUpdateBegun,   // a live rank is updating or has committed S; those at its gate go on
  kAbandoned,     // nobody began the next update: it is abandoned
  kNoCommonStep,  // no step for which every shard has a live valid holder
  kNobodyValid,   // no live rank holds valid state
};
std::string_view StepReasonName(StepReason reason);

struct StepChoice {
  std::optional<Step> step;
  StepReason reason = StepReason::kNobodyValid;
  // Where there is no common step: of the newest one, the first shard that nobody holds at it.
  struct Lack {
    Step step;
    int layout = 0;
    Rank rank;
  };
  std::optional<Lack> lack = std::nullopt;
};

// Whether a rank that reported this can stand at `step` without help: it has committed it, is in the middle of its
// local arithmetic, or waits at its gate (all inputs are there).
bool CanReach(const LockReport& report, Step step);

StepChoice ChooseStep(const std::vector<LockReport>& reports, const ReplicaMap& replicas);

}  // namespace kintsugi::core
