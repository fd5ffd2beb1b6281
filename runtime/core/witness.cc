#include "runtime/core/witness.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::core {

TieOrder TieAgreement::Decide(std::optional<TieRule> wanted) {
  const bool all_took_it = std::all_of(voters_.begin(), voters_.end(), [this](int voter) {
    const auto taken = taken_.find(voter);
    return taken != taken_.end() && taken->second == order_.number;
  });
  if (!wanted || *wanted == order_.rule || !all_took_it) return order_;
  const TieRule before = order_.rule;
  order_ = {order_.number + 1, before == TieRule::kNobody ? *wanted : TieRule::kNobody};
  KINTSUGI_CHECK((before == TieRule::kNobody) != (order_.rule == TieRule::kNobody),
                 "from one rule to another without a step at which nobody acts");
  return order_;
}

}  // namespace kintsugi::core
