// Phase: where an incident stands. The only enum for it; docs/protocol.md draws its transition table.
#pragma once

#include <cstdint>
#include <string_view>

namespace kintsugi::core {

enum class Phase : uint8_t {
  kRunning,
  kConfirm,   // late signals are collected for a short bounded time
  kLock,      // nobody passes a gate; every live rank reports where it stands
  kStop,      // collectives are aborted, trainers park at step S
  kClean,     // the old contexts are destroyed
  kAdmit,     // new processes join; also where a run begins
  kRebuild,   // process groups of the new generation
  kRepair,    // state moves from replicas (or a checkpoint)
  kVerify,    // replica groups compare digests
  kRollback,  // schedule, data position, objects and derived parameters go to S
  kDump,      // survivors write a checkpoint
  kRename,    // it becomes visible
  kEnded,
};
inline constexpr int kPhaseCount = 13;

std::string_view PhaseName(Phase phase);

// Whether the table holds the transition. A controller that makes another one fails a CHECK.
bool IsTransition(Phase from, Phase to);

}  // namespace kintsugi::core
