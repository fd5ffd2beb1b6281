#include "runtime/core/consent.h"

#include <algorithm>

namespace kintsugi::core {

std::string_view TieRuleName(TieRule rule) {
  switch (rule) {
    case TieRule::kLowestRank:
      return "lowest-rank";
    case TieRule::kNobody:
      return "nobody";
    case TieRule::kWitness:
      return "witness";
  }
  return "?";
}

Consent ConsentOf(const std::vector<Ballot>& votes, TieRule rule) {
  const auto live = static_cast<size_t>(std::count(votes.begin(), votes.end(), Ballot::kLive));
  const auto ended = static_cast<size_t>(std::count(votes.begin(), votes.end(), Ballot::kEnded));
  const size_t weight = 2 * live + ended;
  if (weight != votes.size()) return weight > votes.size() ? Consent::kYes : Consent::kNo;
  const auto lowest = std::find_if(votes.begin(), votes.end(), [](Ballot vote) { return vote != Ballot::kEnded; });
  if (lowest == votes.end()) return Consent::kYes;  // nobody lives: there is no other side
  if (rule == TieRule::kWitness) return Consent::kAskWitness;
  return rule == TieRule::kLowestRank && *lowest == Ballot::kLive ? Consent::kYes : Consent::kNo;
}

}  // namespace kintsugi::core
