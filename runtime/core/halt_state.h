// HaltState: what LOCK and STOP wait for. One enum, one table; the diagram in docs/protocol.md is the same.
#pragma once

#include <cstdint>
#include <string_view>

namespace kintsugi::core {

enum class HaltState : uint8_t {
  kNone,      // any other phase
  kAnswers,   // LOCK: all live ranks say where they stand
  kMajority,  // LOCK: too few have, and others may come back
  kAway,      // LOCK: what the dead left, or the away hold, may be all there is
  kParking,   // STOP: all park
  kAwayLate,  // STOP: all are parked, and the ladder would end the run for want of what somebody away may hold
};
inline constexpr int kHaltStateCount = 6;

std::string_view HaltStateName(HaltState state);

// Whether the table holds the transition. A controller that makes another one fails a CHECK.
bool IsTransition(HaltState from, HaltState to);

}  // namespace kintsugi::core
