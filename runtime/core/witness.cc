#include "runtime/core/witness.h"

#include <algorithm>

namespace kintsugi::core {

TieOrder TieAgreement::Decide(std::optional<TieRule> wanted) {
  const bool all_took_it =
      static_cast<int>(taken_.size()) == nodes_ &&
      std::all_of(taken_.begin(), taken_.end(), [this](const auto& taken) { return taken.second == order_.number; });
  if (!wanted || *wanted == order_.rule || !all_took_it) return order_;
  order_ = {order_.number + 1, order_.rule == TieRule::kNobody ? *wanted : TieRule::kNobody};
  return order_;
}

}  // namespace kintsugi::core
