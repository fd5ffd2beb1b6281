// Consent: whether those who answer may act for the whole run (DESIGN section 3, "Who decides").
//
// Rule: of n ranks, 2 x (live ones that answer) + (ranks whose processes are known to have ended) must exceed n; where
// it equals n, the side that holds the lowest rank not known to have ended acts. Two sides that cannot hear each other
// never both act: they share no live rank, so if both reached n, they would hold n together with the ended ones, which
// both then know alike, and of those that are left only one side holds the lowest.
#pragma once

#include <cstdint>
#include <vector>

namespace kintsugi::core {

// How one rank counts.
enum class Vote : uint8_t {
  kUnknown,  // nobody here can say whether its process lives
  kEnded,    // its own node's launcher saw the process end
  kLive,     // it answers
};

// votes[rank]; an empty world needs nobody's consent.
bool HasConsent(const std::vector<Vote>& votes);

}  // namespace kintsugi::core
