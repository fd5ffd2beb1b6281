#include "runtime/core/phase.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kintsugi::core {
namespace {

using enum Phase;

constexpr std::array<std::string_view, kPhaseCount> kPhaseNames = {"RUNNING", "CONFIRM", "LOCK",   "STOP",   "CLEAN",
                                                                   "ADMIT",   "REBUILD", "REPAIR", "VERIFY", "ROLLBACK",
                                                                   "DUMP",    "RENAME",  "ENDED"};

constexpr std::array<std::pair<Phase, Phase>, 26> kPhaseTransitions = {{
    {kRunning, kConfirm},
    {kConfirm, kRunning},  // a healed gap: no new generation
    {kConfirm, kLock},
    {kAdmit, kConfirm},  // a fault while the run starts
    {kLock, kStop},
    {kStop, kClean},
    {kClean, kAdmit},
    {kClean, kRebuild},
    {kAdmit, kRebuild},
    {kRebuild, kRepair},
    {kRepair, kVerify},
    {kVerify, kRollback},
    {kRollback, kRunning},
    // A fault in any phase goes back to LOCK with a new attempt and generation.
    {kLock, kLock},
    {kStop, kLock},
    {kClean, kLock},
    {kAdmit, kLock},
    {kRebuild, kLock},
    {kRepair, kLock},
    {kVerify, kLock},
    {kRollback, kLock},
    {kDump, kLock},
    {kRename, kLock},
    {kStop, kDump},  // only parked ranks write
    {kDump, kRename},
    {kRename, kEnded},
}};

}  // namespace

std::string_view PhaseName(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }

bool IsTransition(Phase from, Phase to) {
  if (to == kEnded) return from != kEnded;
  return std::find(kPhaseTransitions.begin(), kPhaseTransitions.end(), std::pair{from, to}) != kPhaseTransitions.end();
}

}  // namespace kintsugi::core
