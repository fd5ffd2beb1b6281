#include "replica/plan/planner.h"

#include "replica/layout/request.h"
#include "replica/plan/key_planner.h"
#include "runtime/base/check.h"

namespace kintsugi::plan {

Result<Plan, layout::LayoutError> MakePlan(const layout::Metadata& source, const layout::Metadata& target,
                                           const PlanOptions& options) {
  const auto errors = CheckRequest(source, target, {.allow_cast = options.allow_cast, .errors_max = 1});
  if (!errors.empty()) return errors.front();
  Plan plan;
  plan.source_digest = DigestOf(source);
  plan.target_digest = DigestOf(target);
  plan.rank = options.rank;
  plan.keys.reserve(target.keys.size());
  if (!options.rank) {
    // Most layouts have about one move for each shard that is asked for.
    plan.moves.reserve(target.holders.size());
    plan.coordinates.reserve(target.coordinates.size());
  }
  PlanCost ignored;
  KeyPlanner planner(source, target, options, options.cost ? &options.cost->steps : &ignored.steps, &plan);
  for (uint32_t key = 0; key < target.keys.size(); ++key)
    if (auto error = planner.Add(key)) return std::move(*error);
  KINTSUGI_CHECK(plan.keys.size() == target.keys.size(), "each key of the target has its moves");
  return plan;
}

}  // namespace kintsugi::plan
