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
  const auto count = [&votes](Ballot ballot) {
    return static_cast<size_t>(std::count(votes.begin(), votes.end(), ballot));
  };
  const bool all_are_asked = count(Ballot::kUnknown) == 0;
  const auto has_ended = [all_are_asked](Ballot vote) {
    return vote == Ballot::kEnded || (vote == Ballot::kForgotten && all_are_asked);
  };
  const size_t ended = count(Ballot::kEnded) + (all_are_asked ? count(Ballot::kForgotten) : 0);
  const size_t weight = 2 * count(Ballot::kLive) + ended;
  if (weight != votes.size()) return weight > votes.size() ? Consent::kYes : Consent::kNo;
  const auto lowest = std::find_if_not(votes.begin(), votes.end(), has_ended);
  if (lowest == votes.end()) return Consent::kYes;  // nobody lives: there is no other side
  if (rule == TieRule::kWitness) return Consent::kAskWitness;
  return rule == TieRule::kLowestRank && *lowest == Ballot::kLive ? Consent::kYes : Consent::kNo;
}

}  // namespace kintsugi::core
