// Seeds of a profile, one after the other: each that breaks a promise fails the test and prints the command that replays it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "replica/live/piece_moves.h"
#include "runtime/sim/campaign.h"

namespace kintsugi::sim {

inline constexpr int kFailuresMax = 5;

inline Campaign RunSeeds(const std::string& name, uint64_t first, uint64_t end, int ranks = 0) {
  const Profile profile = FindProfile(name).value();
  Campaign campaign;
  for (uint64_t seed = first; seed < end && campaign.failures().size() < kFailuresMax; ++seed) {
    Plan plan = DrawPlan(seed, profile, ranks);
    plan.planner = live::PlanPieceMoves;
    campaign.Add(plan, Cluster(plan).Run());
  }
  for (const Campaign::Failure& failure : campaign.failures())
    ADD_FAILURE() << "seed " << failure.seed << " breaks " << failure.violation.ToString()
                  << "\n  replay: " << ReplayCommand(failure.seed, name, ranks);
  std::string summary = name + ": " + std::to_string(campaign.seeds_run()) + " seeds, " +
                        std::to_string(campaign.incidents()) + " incidents, " + std::to_string(campaign.healed()) +
                        " healed;";
  for (const auto& [code, count] : campaign.exits())
    summary += " exit " + std::to_string(code) + ": " + std::to_string(count);
  std::printf("%s\n", summary.c_str());
  return campaign;
}

inline uint64_t Struck(const Campaign& campaign, FaultType type) {
  uint64_t count = 0;
  for (const auto& [phase, counts] : campaign.coverage())
    if (const auto found = counts.find(type); found != counts.end()) count += found->second;
  return count;
}

}  // namespace kintsugi::sim
