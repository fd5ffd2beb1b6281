// SaveState: where a save stands, from the request to the end; also where replicas are compared outside of an incident,
// and a pause that an operator asked for.
// One enum, one table; the diagram in docs/protocol.md is the same.
#pragma once

#include <cstdint>
#include <string_view>

namespace kintsugi::core {

enum class SaveState : uint8_t {
  kNone,
  kArming,     // all ranks are to store at which step they park
  kGathering,  // they come to park there
  kPaused,     // all are parked, and an operator says when they go on
  kVerifying,  // replicas are compared between steps
  kRescuing,   // DUMP: processes come that adopt what only launchers hold
  kComparing,  // DUMP: replicas, before anything is written
  kWriting,
  kRenaming,
  kFinalVerify,  // all have finished: replicas are compared a last time
};
inline constexpr int kSaveStateCount = 10;

std::string_view SaveStateName(SaveState state);

// Whether the table holds the transition. A controller that makes another one fails a CHECK.
bool IsTransition(SaveState from, SaveState to);

// Ranks compute, or are on their way to where they park: nobody writes or compares.
constexpr bool InLoops(SaveState state) {
  return state == SaveState::kNone || state == SaveState::kArming || state == SaveState::kGathering;
}
// Digests of all ranks are waited for.
constexpr bool Compares(SaveState state) {
  return state == SaveState::kVerifying || state == SaveState::kComparing || state == SaveState::kFinalVerify;
}
// A checkpoint is being made.
constexpr bool Writes(SaveState state) { return state == SaveState::kWriting || state == SaveState::kRenaming; }

}  // namespace kintsugi::core
