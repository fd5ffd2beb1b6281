#include "runtime/core/step_choice.h"

#include <algorithm>
#include <functional>
#include <set>

namespace kintsugi::core {

std::string_view GateStateName(GateState state) {
  switch (state) {
    case GateState::kCommitted:
      return "committed";
    case GateState::kAtGate:
      return "at_gate";
    case GateState::kUpdating:
      return "updating";
    case GateState::kTorn:
      return "torn";
  }
  return "unknown";
}

std::string_view StepReasonName(StepReason reason) {
  switch (reason) {
    case StepReason::kUpdateBegun:
      return "update_begun";
    case StepReason::kAbandoned:
      return "abandoned";
    case StepReason::kNoCommonStep:
      return "no_common_step";
    case StepReason::kNobodyValid:
      return "nobody_valid";
  }
  return "unknown";
}

bool CanReach(const LockReport& report, Step step) {
  if (!report.valid) return false;
  switch (report.state) {
    case GateState::kCommitted:
      return report.step == step;
    case GateState::kUpdating:
      return report.step == step;
    // At the gate of step + 1 the state is still that of `step`.
    case GateState::kAtGate:
      return report.step == step || report.step == step.Next();
    case GateState::kTorn:
      return false;
  }
  return false;
}

StepChoice ChooseStep(const std::vector<LockReport>& reports, const ReplicaMap& replicas) {
  // Only steps that a live rank has begun or still holds are candidates; at_gate(k) alone begins nothing. One whose
  // state is of no use has begun its step all the same: it passed the gate, so those at the gate can go on.
  std::set<Step, std::greater<>> candidates;
  bool anybody_valid = false;
  for (const LockReport& report : reports) {
    anybody_valid = anybody_valid || (report.valid && report.state != GateState::kTorn);
    if (!report.valid && report.state == GateState::kAtGate) continue;
    if (report.state == GateState::kAtGate && report.step.value() == 0) continue;  // updates are numbered from 1
    candidates.insert(report.state == GateState::kAtGate ? report.step.Previous() : report.step);
  }
  if (!anybody_valid || candidates.empty()) return {std::nullopt, StepReason::kNobodyValid};

  std::optional<StepChoice::Lack> lack;
  for (Step candidate : candidates) {
    std::set<Rank> reach, doubtful;
    for (const LockReport& report : reports)
      if (CanReach(report, candidate)) (report.doubtful ? doubtful : reach).insert(report.rank);
    const auto& shards = replicas.shards();
    const auto missing = std::find_if(shards.begin(), shards.end(), [&](const ReplicaMap::Shard& shard) {
      const auto of = [&](const std::set<Rank>& ranks) {
        return std::count_if(shard.holders.begin(), shard.holders.end(), [&](Rank r) { return ranks.count(r) > 0; });
      };
      return of(reach) == 0 && of(doubtful) <= 1;
    });
    if (missing != shards.end()) {
      if (!lack) lack = StepChoice::Lack{candidate, missing->layout, missing->holders.front()};
      continue;
    }
    const bool abandons = std::any_of(reports.begin(), reports.end(), [&](const LockReport& r) {
      return r.valid && r.state == GateState::kAtGate && r.step == candidate.Next();
    });
    return {candidate, abandons ? StepReason::kAbandoned : StepReason::kUpdateBegun};
  }
  return {std::nullopt, StepReason::kNoCommonStep, lack};
}

}  // namespace kintsugi::core
