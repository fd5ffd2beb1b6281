// What one virtual run was like: which promise it broke, if any, and what the statistics over many runs need.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/controller_types.h"
#include "runtime/sim/plan.h"

namespace kintsugi::sim {

// What a run is held to; docs/promises.md says where each is decided. Reports and tests name them by their numbers.
enum class Promise : uint8_t {
  kSameStep = 1,      // all leave an incident at one step with equal state
  kBitIdentical = 2,  // as if nothing had happened
  kUpdateOnce = 3,    // no update is applied twice or half
  kOneDecider = 4,    // nobody obeys an older term, generation or incarnation
  kCheckpoint = 5,    // visible only when complete
  kSamplesOnce = 6,   // every sample is consumed exactly once
  kProgress = 7,      // after faults stop, progress or a dump within a bounded time
  kBadInput = 8,      // refused, and nothing comes of it
  kInnocent = 9,      // nobody pays for another rank's fault; nothing is given up that could be repaired
  kTable = 10,        // transitions, generations, incarnations, budgets are as the tables say
  kBounds = 11,       // every queue has a bound, every wait a deadline
};
std::string_view PromiseName(Promise promise);

struct Violation {
  Promise promise;
  std::string text;
  std::string ToString() const;
};

struct Outcome {
  std::vector<Violation> violations;
  int exit_code = -1;
  std::string text;
  Duration took{};  // virtual
  uint64_t incidents = 0;
  int attempts_max = 0;
  uint64_t healed = 0;
  uint64_t done_without = 0;  // nodes that stayed away, where the run went on in a smaller world
  uint64_t moved = 0;         // blocks of ranks that a spare node took over
  std::set<Rung> rungs;
  std::map<std::pair<Phase, FaultType>, uint64_t> struck;  // faults that fired, by the controller's phase
  std::vector<Duration> recoveries;                        // fault -> all ranks stepping again
};

}  // namespace kintsugi::sim
