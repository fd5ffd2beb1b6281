// Mutants: one guard each, taken out through the simulator's hook, and the promise that must be seen to break.
//
// The library holds no mutant: they live in this test binary.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/sim/campaign.h"

namespace kintsugi::sim {

struct Mutant {
  std::string name;
  std::string guard;  // what was taken out
  std::string profile;
  uint64_t seed;    // recorded: it kills the mutant; 0: not found yet
  Promise promise;  // the one that this seed breaks
  std::function<std::unique_ptr<Hook>()> make;
  // Elsewhere hangs are neither made nor looked for: the look-out would rescue what many mutants bring to a stop.
  bool with_hangs = false;
};

// In the order of the table in mutants_test.cc.
std::vector<Mutant> ControllerMutants();
std::vector<Mutant> AgentMutants();
std::vector<Mutant> ElectionMutants();
std::vector<Mutant> HeldMutants();
std::vector<Mutant> SnapshotMutants();
std::vector<Mutant> CrewMutants();
std::vector<Mutant> RefusalMutants();

}  // namespace kintsugi::sim
