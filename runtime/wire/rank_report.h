// RankReport: one committed step's report of an agent that no launcher watches. It goes to the run's ledger, not to the
// controller's core.
#pragma once

#include <cstdint>
#include <vector>

namespace kintsugi::wire {

struct RankReport {
  uint64_t step = 0;
  double loss = 0;
  std::vector<uint64_t> samples;
};

}  // namespace kintsugi::wire
