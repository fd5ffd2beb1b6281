#include "runtime/sim/campaign.h"

#include <algorithm>
#include <cstdio>

namespace kintsugi::sim {
namespace {

constexpr Phase kLastStruck = Phase::kRename;  // nothing strikes a run that has ended

std::string Counts(const std::map<FaultType, uint64_t>& counts) {
  std::string json = "{";
  for (int i = 0; i < kFaultTypes; ++i) {
    const auto type = static_cast<FaultType>(i);
    const auto found = counts.find(type);
    json += (i ? "," : "") + ("\"" + std::string(FaultTypeName(type)) + "\":") +
            std::to_string(found == counts.end() ? 0 : found->second);
  }
  return json + "}";
}

}  // namespace

void Campaign::Add(const Plan& plan, const Outcome& outcome) {
  ++seeds_run_;
  incidents_ += outcome.incidents;
  healed_ += outcome.healed;
  moved_ += outcome.moved;
  done_without_ += outcome.done_without;
  ++exits_[outcome.exit_code];
  rungs_.insert(outcome.rungs.begin(), outcome.rungs.end());
  for (const auto& [cell, count] : outcome.struck) coverage_[cell.first][cell.second] += count;
  recoveries_.insert(recoveries_.end(), outcome.recoveries.begin(), outcome.recoveries.end());
  if (!outcome.violations.empty()) failures_.push_back({plan.seed, outcome.violations.front()});
}

Duration Campaign::RecoveryMedian() const {
  if (recoveries_.empty()) return {};
  std::vector<Duration> sorted = recoveries_;
  const auto middle = sorted.begin() + static_cast<long>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

Duration Campaign::RecoveryMax() const {
  return recoveries_.empty() ? Duration{} : *std::max_element(recoveries_.begin(), recoveries_.end());
}

std::string Campaign::Json(double seconds) const {
  char rate[32];
  std::snprintf(rate, sizeof rate, "%.1f", seconds > 0 ? static_cast<double>(seeds_run_) / seconds : 0.0);
  std::map<FaultType, uint64_t> faults;
  std::string coverage, failing;
  for (int phase = 0; phase <= static_cast<int>(kLastStruck); ++phase) {
    const auto found = coverage_.find(static_cast<Phase>(phase));
    const std::map<FaultType, uint64_t> counts =
        found == coverage_.end() ? std::map<FaultType, uint64_t>() : found->second;
    for (const auto& [type, count] : counts) faults[type] += count;
    coverage += (phase ? ",\"" : "\"") + std::string(PhaseName(static_cast<Phase>(phase))) + "\":" + Counts(counts);
  }
  for (const Failure& failure : failures_) failing += (failing.empty() ? "" : ",") + std::to_string(failure.seed);
  return "{\"schema\":1,\"seeds_run\":" + std::to_string(seeds_run_) + ",\"seeds_per_second\":" + rate +
         ",\"failing_seeds\":[" + failing + "],\"incidents\":" + std::to_string(incidents_) +
         ",\"faults\":" + Counts(faults) + ",\"coverage\":{" + coverage +
         "},\"recovery_ms_median\":" + Milliseconds(RecoveryMedian()) +
         ",\"recovery_ms_max\":" + Milliseconds(RecoveryMax()) + "}";
}

Plan Minimize(Plan plan, Promise promise, Hook* hook) {
  for (size_t i = 0; i < plan.faults.size();) {
    Plan shorter = plan;
    shorter.faults.erase(shorter.faults.begin() + static_cast<long>(i));
    const Outcome outcome = Cluster(shorter, nullptr, hook).Run();
    if (!outcome.violations.empty() && outcome.violations.front().promise == promise) {
      plan = std::move(shorter);
      i = 0;
    } else {
      ++i;
    }
  }
  return plan;
}

std::string ReplayCommand(uint64_t seed, const std::string& profile, int ranks) {
  return "kintsugi sim --seeds " + std::to_string(seed) + ".." + std::to_string(seed + 1) + " --profile " + profile +
         (ranks > 0 ? " --ranks " + std::to_string(ranks) : "") + " --log";
}

}  // namespace kintsugi::sim
