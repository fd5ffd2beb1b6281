// Consent: whether the ranks that answer may act for the whole run.
//
// Rule: of n ranks, 2 x (live ones that answer) + (ranks whose processes are known to have ended) must exceed n. Two
// sides that cannot hear each other never both reach that: they share no live rank, so both together would count more
// than all ranks twice. Where it equals n on both sides, each counts as many ranks that it cannot see as it has itself,
// and something else must decide: the lowest rank not known to have ended, which only one side holds, or a witness
// outside, which lends its word to one side at a time.
// Of ranks whose launcher has forgotten its promises another side may have counted the processes while they lived. So
// they count as ended only where everybody else can be asked, and else as if they could not be asked themselves.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace kintsugi::core {

// How one rank counts.
enum class Ballot : uint8_t {
  kUnknown,    // nobody here can say whether its process lives
  kForgotten,  // its process has ended, and so has its launcher: whom that had promised itself to is forgotten
  kEnded,      // its own node's launcher saw the process end
  kLive,       // it answers
};

// What decides an even split. Sides that go by different rules never meet: no launcher goes by the lowest rank while
// another asks the witness (witness.h).
enum class TieRule : uint8_t {
  kLowestRank,  // the side that holds the lowest rank not known to have ended
  kNobody,      // no side acts
  kWitness,     // the side that holds the witness's lease
};
std::string_view TieRuleName(TieRule rule);

enum class Consent : uint8_t {
  kNo,
  kAskWitness,  // the part that holds its lease has the consent
  kYes,
};

// votes[rank]; an empty world needs nobody's consent.
Consent ConsentOf(const std::vector<Ballot>& votes, TieRule rule);

}  // namespace kintsugi::core
