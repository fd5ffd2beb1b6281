// RunHistory: what a run has been so far, as a launcher keeps it for leaders to come: the report of the one that leads at
// the end tells of the time under all others. Incidents that are over, when processes lived, when ranks were at a step, who took
// part.
//
// Threads: none; pure.
// Ownership: values.
// Errors: an incident that cannot be read is left out, and counts as one of which no more is known.
// Invariants: of one incident, and of one process, what was told last is kept; the newest KeepIncidents::kMax, kLivesMax,
// kStepsMax and kWorldsMax are.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "runtime/launcher/run/run_result.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi {

// In the order of their numbers, begins and ends.
struct KeptHistory {
  std::vector<wire::KeptIncident> incidents;
  std::vector<wire::KeptLife> lives;
  std::vector<wire::KeptStep> steps;
  std::vector<wire::KeptWorld> worlds;
};

// As it is told, and back. `begin`: of the run, by the clock here.
wire::KeptIncident ToKept(const IncidentResult& incident, TimePoint begin);
wire::KeptLife ToKept(const RankLife& life, TimePoint begin);
wire::KeptStep ToKept(const StepTiming& step, TimePoint begin);
wire::KeptWorld ToKept(const WorldChange& world, TimePoint begin);
std::vector<IncidentResult> FromKept(const std::vector<wire::KeptIncident>& kept, TimePoint begin);
RankLife FromKept(const wire::KeptLife& kept, TimePoint begin);
StepTiming FromKept(const wire::KeptStep& kept, TimePoint begin);
WorldChange FromKept(const wire::KeptWorld& kept, TimePoint begin);

class RunHistory {
 public:
  void OnTold(const wire::KeepIncidents& told);
  void OnTold(const wire::KeepSpans& told);
  KeptHistory All() const;

 private:
  std::map<uint64_t, wire::KeptIncident> incidents_;
  std::map<std::pair<Rank, Incarnation>, wire::KeptLife> lives_;
  std::vector<wire::KeptStep> steps_;
  std::vector<wire::KeptWorld> worlds_;
};

}  // namespace kintsugi
