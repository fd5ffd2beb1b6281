#include "runtime/core/halt_state.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kintsugi::core {
namespace {

using enum HaltState;

constexpr std::array<std::string_view, kHaltStateCount> kHaltStateNames = {"NONE", "ANSWERS", "MAJORITY",
                                                                           "AWAY", "PARKING", "AWAY_LATE"};

constexpr std::array<std::pair<HaltState, HaltState>, 17> kHaltStateTransitions = {{
    {kNone, kAnswers},
    {kAnswers, kAnswers},  // a fault in any state locks all again
    {kMajority, kAnswers},
    {kAway, kAnswers},
    {kParking, kAnswers},
    {kAwayLate, kAnswers},
    {kAnswers, kMajority},
    {kAway, kMajority},  // consent went while somebody was waited for
    {kMajority, kMajority},
    {kAnswers, kAway},
    {kMajority, kAway},
    {kAway, kAway},
    {kAnswers, kParking},
    {kMajority, kParking},
    {kAway, kParking},
    {kParking, kAwayLate},
    {kAwayLate, kAwayLate},
}};

}  // namespace

std::string_view HaltStateName(HaltState state) { return kHaltStateNames[static_cast<size_t>(state)]; }

bool IsTransition(HaltState from, HaltState to) {
  if (to == kNone) return true;  // the repair is chosen, or the run ends
  const auto& table = kHaltStateTransitions;
  return std::find(table.begin(), table.end(), std::pair{from, to}) != table.end();
}

}  // namespace kintsugi::core
