// Campaign: many seeds, what they broke, and what they covered.
//
// Threads: none.
// Errors: none; a seed that breaks a promise is a result.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

class Campaign {
 public:
  struct Failure {
    uint64_t seed = 0;
    Violation violation;
  };

  // Adds what the run of a plan was like.
  void Add(const Plan& plan, const Outcome& outcome);

  uint64_t seeds_run() const { return seeds_run_; }
  const std::vector<Failure>& failures() const { return failures_; }
  const std::map<Phase, std::map<FaultType, uint64_t>>& coverage() const { return coverage_; }
  const std::map<int, uint64_t>& exits() const { return exits_; }
  const std::set<Rung>& rungs() const { return rungs_; }
  uint64_t healed() const { return healed_; }
  uint64_t moved() const { return moved_; }
  uint64_t done_without() const { return done_without_; }
  uint64_t incidents() const { return incidents_; }
  // Of all incidents that ended in RUNNING; 0 where there were none.
  Duration RecoveryMedian() const;
  Duration RecoveryMax() const;

  // One JSON object: schema, seeds_run, seeds_per_second, failing_seeds, incidents, faults {kind: count},
  // coverage {phase: {kind: count}}, recovery_ms_median, recovery_ms_max. Every kind and phase is named, also with 0.
  std::string Json(double seconds) const;

 private:
  uint64_t seeds_run_ = 0, incidents_ = 0, healed_ = 0, moved_ = 0, done_without_ = 0;
  std::vector<Failure> failures_;
  std::map<Phase, std::map<FaultType, uint64_t>> coverage_;
  std::map<int, uint64_t> exits_;
  std::set<Rung> rungs_;
  std::vector<Duration> recoveries_;
};

// The shortest schedule of the plan's faults that still breaks the same promise: drops one at a time until none can go.
// REQUIRES: the plan breaks it.
Plan Minimize(Plan plan, Promise promise, Hook* hook = nullptr);

// The command that runs one seed again with its whole log.
std::string ReplayCommand(uint64_t seed, const std::string& profile, int ranks);

}  // namespace kintsugi::sim
