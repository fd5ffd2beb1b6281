// What an undisturbed run ends with, and the comparison of a disturbed one with it.
#pragma once

#include "tests/inproc/world.h"

namespace kintsugi::inproc {

struct Outcome {
  uint64_t digest = 0;
  std::map<int, std::vector<float>> state;
  std::map<int, uint64_t> rng;
};

// Run once for each (ranks, steps) and kept.
const Outcome& Undisturbed(int ranks, uint64_t steps);

// Fails the test unless the run ended with success and every rank holds what it would hold without the fault, bit for bit.
void ExpectSameAsUndisturbed(World& world);

// The only incident of a run that has ended.
core::IncidentRecord OnlyIncident(const World& world);

}  // namespace kintsugi::inproc
