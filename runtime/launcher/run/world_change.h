// WorldChange: other ranks take part in a run from a step on. A value.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"

namespace kintsugi {

struct WorldChange {
  TimePoint at;  // the run went on in it
  Step step;     // from the one after
  int ranks = 0;
  std::vector<Rank> left, came;
  uint64_t incident = 0;  // that changed it; 0: none that is known
};

}  // namespace kintsugi
