// Memory that outlives its process: launchers say what they hold of the dead, and the ladder counts with it where
// nothing speaks against it (rung adopt).
#include <algorithm>
#include <utility>

#include "runtime/core/controller_core.h"

namespace kintsugi::core {
namespace {

// From the order to kill a process to its launcher's word that it has ended, where that launcher is here.
constexpr Duration kReapLimit = std::chrono::seconds(1);
// From one such word to the next of processes that were killed together.
constexpr Duration kNextWord = std::chrono::milliseconds(100);

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
// beside a second copy, with which it is compared.
void ControllerCore::AddHeld(std::vector<LockReport>* reports) const {
  for (size_t r = 0; r < members_.size(); ++r) {
    const Member& member = members_[r];
    if (!member.held || (member.life == Life::kReady && !member.fresh)) continue;
    reports->push_back({.rank = Rank(static_cast<int32_t>(r)),
                        .state = GateState::kCommitted,
                        .step = member.held->step,
                        .doubtful = !member.held->clean});
  }
}

// Until when somebody may still say what a process holds that was given up: its launcher is about to see its end, or
// its node is away and may come back.
TimePoint ControllerCore::AwayUntil() const {
  TimePoint until;
  if (!policy_.adopts || !ever_ran_ || !replicas_known_) return until;
  const Duration limit = policy_.needs_consent && !stop_requested_ ? policy_.consent_wait : kReapLimit;
  for (const Member& member : members_)
    if (member.unconfirmed) until = std::max(until, member.given_up_at + limit);
  return until;
}

// Where nobody who answers holds all that is needed, what those hold who do not answer is worth waiting for.
bool ControllerCore::AwaitExits() {
  awaiting_exits_ = false;
  const TimePoint until = AwayUntil();
  if (until <= now_) return false;
  if (phase_ == Phase::kStop || until > now_ + kReapLimit)
    out_.push_back(Notice{Rank(0), "a shard is held by nobody who answers: waiting for what was given up, " +
                                       std::to_string(static_cast<int>(ToMilliseconds(until - now_) / 1000)) +
                                       " s at most"});
  awaiting_exits_ = true;
  deadline_ = until;
  return true;
}

// One more has ended, and what it left is known. The ends of those that were killed together are told together. In STOP
// the step was chosen without it: all meet anew.
void ControllerCore::MaybeExitsKnown() {
  if (!awaiting_exits_ || !NobodyWaits()) return;
  const bool all =
      std::none_of(members_.begin(), members_.end(), [](const Member& m) { return m.unconfirmed.has_value(); });
  if (phase_ == Phase::kLock && !all) deadline_ = std::min(deadline_, now_ + kNextWord);
  if (phase_ == Phase::kLock) return all ? AfterLock() : void();
  awaiting_exits_ = false;
  EnterLock("what a lost process held is known");
}

}  // namespace kintsugi::core
