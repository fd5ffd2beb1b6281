#include "runtime/core/save_state.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kintsugi::core {
namespace {

using enum SaveState;

constexpr std::array<std::string_view, kSaveStateCount> kSaveStateNames = {
    "NONE",     "ARMING",    "GATHERING", "PAUSED",   "VERIFYING",
    "RESCUING", "COMPARING", "WRITING",   "RENAMING", "FINAL_VERIFY"};

constexpr std::array<std::pair<SaveState, SaveState>, 18> kSaveStateTransitions = {{
    {kNone, kArming},     // a save was asked for
    {kNone, kGathering},  // a last one, of the step at which all have finished
    {kNone, kVerifying},  // all are parked at a step at which replicas are compared
    {kNone, kWriting},    // ... or saved; or a dump with nothing to compare
    {kNone, kFinalVerify},
    {kNone, kRescuing},
    {kNone, kComparing},
    {kArming, kArming},  // somebody had gone past: the pause moves
    {kArming, kGathering},
    {kGathering, kArming},  // another one is asked for before all are there
    {kGathering, kPaused},  // it was for a pause alone
    {kNone, kPaused},       // a save has ended, or none was due, and a pause is asked for
    {kPaused, kGathering},  // a save is asked for meanwhile: all are there
    {kGathering, kVerifying},
    {kGathering, kWriting},
    {kRescuing, kComparing},
    {kRescuing, kWriting},
    {kWriting, kRenaming},
}};

}  // namespace

std::string_view SaveStateName(SaveState state) { return kSaveStateNames[static_cast<size_t>(state)]; }

bool IsTransition(SaveState from, SaveState to) {
  if (to == kNone) return true;  // it is done, it failed, or an incident overtakes it
  const auto& table = kSaveStateTransitions;
  return std::find(table.begin(), table.end(), std::pair{from, to}) != table.end();
}

}  // namespace kintsugi::core
