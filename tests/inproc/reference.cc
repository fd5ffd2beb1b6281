#include "tests/inproc/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace kintsugi::inproc {
namespace {

Outcome OutcomeOf(World& world) {
  Outcome outcome;
  const auto ended = world.ended();
  outcome.digest = ended && ended->final_digest ? *ended->final_digest : 0;
  for (int rank = 0; rank < world.options().ranks; ++rank) {
    outcome.state[rank] = world.trainer(rank).State();
    outcome.rng[rank] = world.trainer(rank).rng();
  }
  return outcome;
}

}  // namespace

const Outcome& Undisturbed(int ranks, uint64_t steps) {
  static std::map<std::pair<int, uint64_t>, Outcome> known;
  const auto found = known.find({ranks, steps});
  if (found != known.end()) return found->second;
  WorldOptions options;
  options.ranks = ranks;
  options.replicas = std::min(2, ranks);
  options.steps = steps;
  World world(options);
  world.RunAll();
  Outcome outcome = OutcomeOf(world);
  EXPECT_NE(outcome.digest, 0u) << "the undisturbed run itself failed: " << world.ended()->text;
  return known[{ranks, steps}] = outcome;
}

void ExpectSameAsUndisturbed(World& world) {
  world.WaitAll();
  const auto ended = world.ended();
  ASSERT_TRUE(ended.has_value()) << "the run did not end";
  EXPECT_EQ(ended->exit_code, 0) << ended->text;
  EXPECT_EQ(ended->committed, Step(world.options().steps));
  const Outcome& expected = Undisturbed(world.options().ranks, world.options().steps);
  const Outcome found = OutcomeOf(world);
  EXPECT_EQ(found.digest, expected.digest);
  EXPECT_EQ(found.rng, expected.rng);
  for (int rank = 0; rank < world.options().ranks; ++rank) {
    EXPECT_TRUE(world.result(rank).ok()) << "rank " << rank << ": " << world.result(rank).ToString();
    EXPECT_EQ(world.trainer(rank).exit_code(), 0) << "rank " << rank;
    const auto& a = expected.state.at(rank);
    const auto& b = found.state.at(rank);
    ASSERT_EQ(a.size(), b.size()) << "rank " << rank;
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << "rank " << rank << " holds other bits";
  }
}

core::IncidentRecord OnlyIncident(const World& world) {
  const auto incidents = world.incidents();
  EXPECT_EQ(incidents.size(), 1u);
  return incidents.empty() ? core::IncidentRecord{} : incidents.front();
}

}  // namespace kintsugi::inproc
