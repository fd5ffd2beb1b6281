// Retention: which checkpoints stay once newer ones stand.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/base/ids.h"

namespace kintsugi::checkpoint {

struct Retention {
  int newest = 2;      // complete ones, the newest included; at least 1
  uint64_t every = 0;  // those of steps that are multiples of it stay for good; 0: none

  int count() const { return std::max(newest, 1); }
  bool KeepsForGood(Step step) const { return every > 0 && step.value() % every == 0; }
};

}  // namespace kintsugi::checkpoint
