// The virtual runs that golden scenarios were made from: small worlds, one incident each.
#pragma once

#include <string>
#include <vector>

#include "runtime/sim/plan.h"

namespace kintsugi {

struct GoldenPlan {
  std::string name;    // of the file
  std::string remark;  // its first lines
  sim::Plan plan;
};
std::vector<GoldenPlan> GoldenPlans();

}  // namespace kintsugi
