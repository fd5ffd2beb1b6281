#include "runtime/core/consent.h"

#include <algorithm>

namespace kintsugi::core {

bool HasConsent(const std::vector<Vote>& votes) {
  const auto live = static_cast<size_t>(std::count(votes.begin(), votes.end(), Vote::kLive));
  const auto ended = static_cast<size_t>(std::count(votes.begin(), votes.end(), Vote::kEnded));
  const size_t weight = 2 * live + ended;
  if (weight != votes.size()) return weight > votes.size();
  const auto lowest = std::find_if(votes.begin(), votes.end(), [](Vote vote) { return vote != Vote::kEnded; });
  return lowest == votes.end() || *lowest == Vote::kLive;
}

}  // namespace kintsugi::core
