// A plan whose ranks do not hang, and whose controller looks out for none: nothing that stands still is rescued by it.
#pragma once

#include "runtime/sim/plan.h"

namespace kintsugi::sim {

inline Plan WithoutHangs(Plan plan) {
  plan.policy.hang_factor = 0;
  std::erase_if(plan.faults, [](const PlannedFault& fault) { return fault.type == FaultType::kHang; });
  return plan;
}

}  // namespace kintsugi::sim
