// Refusals: steps that virtual ranks refuse: what each tells of one in REBUILD, learns in ROLLBACK, and does then. As
// runtime/agent/refusals, around the same RefusedStep.
//
// Threads: none.
// Ownership: what a rank knows is its process's; what was told is the generation's.
// Errors: good data that is left out, a place that is given up where nobody may come, more steps left out than may be:
// broken promises.
// Invariants: without planned refusals nothing here does anything.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "runtime/sim/upward.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class Refusals {
 public:
  Refusals(World& world, ProcessEnd& processes) : world_(world), processes_(processes) {}

  bool planned() const { return !world_.plan.refusals.empty(); }

  // False: the process gives way, and is gone.
  bool Begin(Process* p, uint64_t step);
  bool LeavesOut(const Process* p, uint64_t step) const;
  // It passes the step by. Where no more may be left out: why the run ends.
  std::optional<std::string> PassBy(const Process* p, uint64_t step);
  // It has computed the step. Why it refuses it.
  std::optional<std::string> Judge(Process* p, uint64_t step, uint64_t contribution);
  // Before the gate: whether it was another number, when the step was refused.
  bool Doubts(Process* p) const;

  // REBUILD is done; ROLLBACK begins.
  void Tell(const Process* p, const RunOnTrainer& run);
  void Hear(Process* p, const RunOnTrainer& run);

 private:
  using Place = std::pair<Term, Generation>;
  bool MayBeReplaced(const Process* p) const;
  bool MayGiveWay(const Process* p) const;
  bool IsKnown(uint64_t step) const;
  // Of data, or of one computation alone; null: nothing is planned.
  const PlannedRefusal* Find(uint64_t step) const;

  World& world_;
  ProcessEnd& processes_;
  std::set<uint64_t> spent_;  // steps that were refused without a lasting cause
  std::map<Place, std::map<Rank, core::StepFacts>> told_;
};

}  // namespace kintsugi::sim
