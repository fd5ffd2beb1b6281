// Memory that outlives its process: launchers say what they hold of the dead, and the ladder counts with it where
// nothing speaks against it (rung adopt).
#include <algorithm>
#include <utility>

#include "runtime/core/controller_core.h"

namespace kintsugi::core {
namespace {

// From the order to kill a process to its launcher's word that it has ended.
constexpr Duration kReapLimit = std::chrono::seconds(1);

}  // namespace

void ControllerCore::OnHeld(const StateHeld& told) {
  if (!InWorld(told.rank)) return;
  Member& member = At(told.rank);
  member.held = told.held && told.held->of > member.doubted ? told.held : std::nullopt;
}

// It turned out not to be what it should be: the state is streamed instead.
void ControllerCore::DoubtHeld(Rank rank) {
  Member& member = At(rank);
  if (!member.held) return;
  member.doubted = std::max(member.doubted, member.held->of);
  member.held.reset();
}

bool ControllerCore::Adopts(Rank rank) const {
  return std::any_of(moves_.begin(), moves_.end(),
                     [rank](const RepairMove& move) { return move.adopt && move.destination == rank; });
}

// What is held counts like the report of a rank that waits there. After an error of the process's own it counts only
// where a replica vouches for it, and then the replica's report does.
void ControllerCore::AddHeld(std::vector<LockReport>* reports) const {
  for (size_t r = 0; r < members_.size(); ++r) {
    const Member& member = members_[r];
    if (!member.held || !member.held->clean || (member.life == Life::kReady && !member.fresh)) continue;
    reports->push_back({Rank(static_cast<int32_t>(r)), GateState::kCommitted, member.held->step, true});
  }
}

// A rank that was given up a moment ago may have left the only copy of its shard: its launcher's word is worth waiting
// for.
bool ControllerCore::AwaitExits() {
  awaiting_exits_ = false;
  if (!policy_.adopts || choice_.step || !ever_ran_ || !replicas_known_ || std::exchange(awaited_exits_, true))
    return false;
  if (std::none_of(members_.begin(), members_.end(), [](const Member& m) { return m.unconfirmed.has_value(); }))
    return false;
  awaiting_exits_ = true;
  deadline_ = now_ + kReapLimit;
  return true;
}

void ControllerCore::MaybeExitsKnown() {
  if (awaiting_exits_ && phase_ == Phase::kLock && NobodyWaits() &&
      std::none_of(members_.begin(), members_.end(), [](const Member& m) { return m.unconfirmed.has_value(); }))
    AfterLock();
}

}  // namespace kintsugi::core
