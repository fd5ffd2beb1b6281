#include "runtime/core/witness.h"

#include <algorithm>

namespace kintsugi::core {

TieOrder TieAgreement::Decide(std::optional<TieRule> wanted) {
  const bool all_took_it = std::all_of(voters_.begin(), voters_.end(), [this](int voter) {
    const auto taken = taken_.find(voter);
    return taken != taken_.end() && taken->second == order_.number;
  });
  if (!wanted || *wanted == order_.rule || !all_took_it) return order_;
  order_ = {order_.number + 1, order_.rule == TieRule::kNobody ? *wanted : TieRule::kNobody};
  return order_;
}

}  // namespace kintsugi::core
