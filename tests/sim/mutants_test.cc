// The proof that the checkers can fail: each mutant breaks the promise that its guard keeps, on a recorded seed.
//
// KINTSUGI_MUTANTS=search looks for each mutant's first killing seed afresh and prints the rows to record.
#include "tests/sim/mutants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "replica/live/piece_moves.h"
#include "tests/sim/without_hangs.h"

namespace kintsugi::sim {
namespace {

constexpr uint64_t kSeedsMax = 10000;  // within so many a mutant must be caught; all but three are within 2,000

std::vector<Mutant> AllMutants() {
  std::vector<Mutant> all = ControllerMutants();
  for (Mutant& mutant : AgentMutants()) all.push_back(std::move(mutant));
  for (Mutant& mutant : ElectionMutants()) all.push_back(std::move(mutant));
  for (Mutant& mutant : HeldMutants()) all.push_back(std::move(mutant));
  for (Mutant& mutant : SnapshotMutants()) all.push_back(std::move(mutant));
  for (Mutant& mutant : CrewMutants()) all.push_back(std::move(mutant));
  for (Mutant& mutant : RefusalMutants()) all.push_back(std::move(mutant));
  return all;
}

Plan PlanFor(const Mutant& mutant, uint64_t seed) {
  Plan plan = DrawPlan(seed, FindProfile(mutant.profile).value(), 0);
  plan.planner = live::PlanPieceMoves;
  return mutant.with_hangs ? plan : WithoutHangs(plan);
}

Outcome RunMutant(const Mutant& mutant, uint64_t seed) {
  const std::unique_ptr<Hook> hook = mutant.make();
  return Cluster(PlanFor(mutant, seed), nullptr, hook.get()).Run();
}

class EveryMutant : public testing::TestWithParam<Mutant> {};

TEST_P(EveryMutant, IsCaughtByTheRecordedSeed) {
  const Mutant& mutant = GetParam();
  ASSERT_GT(mutant.seed, 0u) << "no seed is recorded";
  ASSERT_LE(mutant.seed, kSeedsMax);
  const Outcome outcome = RunMutant(mutant, mutant.seed);
  ASSERT_FALSE(outcome.violations.empty())
      << "without the guard '" << mutant.guard << "' seed " << mutant.seed
      << " keeps every promise; KINTSUGI_MUTANTS=search sim_mutants_test finds another";
  EXPECT_EQ(outcome.violations.front().promise, mutant.promise) << outcome.violations.front().ToString();
  EXPECT_TRUE(Cluster(PlanFor(mutant, mutant.seed)).Run().violations.empty()) << "the seed fails by itself";
}

INSTANTIATE_TEST_SUITE_P(All, EveryMutant, testing::ValuesIn(AllMutants()),
                         [](const auto& mutant) { return mutant.param.name; });

TEST(Mutants, AreManyAndNamedOnce) {
  std::set<std::string> names;
  for (const Mutant& mutant : AllMutants()) EXPECT_TRUE(names.insert(mutant.name).second) << mutant.name;
  EXPECT_GE(names.size(), 20u);
}

TEST(Mutants, Search) {
  const char* wanted = std::getenv("KINTSUGI_MUTANTS");
  if (!wanted || std::string(wanted) != "search")
    GTEST_SKIP() << "set KINTSUGI_MUTANTS=search to look for killing seeds";
  for (const Mutant& mutant : AllMutants()) {
    uint64_t seed = 1;
    Outcome outcome;
    const auto kills = [&] {
      outcome = RunMutant(mutant, seed);
      return !outcome.violations.empty() && Cluster(PlanFor(mutant, seed)).Run().violations.empty();
    };
    while (seed <= kSeedsMax && !kills()) ++seed;
    if (seed > kSeedsMax) {
      ADD_FAILURE() << mutant.name << " survives " << kSeedsMax << " seeds";
      continue;
    }
    std::printf("%s seed %llu %s\n", mutant.name.c_str(), static_cast<unsigned long long>(seed),
                outcome.violations.front().ToString().c_str());
  }
}

}  // namespace
}  // namespace kintsugi::sim
