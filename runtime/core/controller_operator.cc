// What an operator asks for beside saves and the end: that the run stands still, goes on again, or gets a new process
// for a rank.
//
// A pause uses the save points: all ranks park at one boundary and stay. A save that is asked for meanwhile is made
// there. An incident ends it as it ends a save; once the run goes on, it pauses again. It ends with its controller: who
// takes the run over has not heard of it.
#include <algorithm>

#include "runtime/core/controller_core.h"

namespace kintsugi::core {

void ControllerCore::OnPauseAsked() {
  if (stop_requested_) return;  // it leaves
  pause_asked_ = true;
  BeginRequestedSave();
}

void ControllerCore::OnContinueAsked() {
  if (!std::exchange(pause_asked_, false) || save_ != SaveState::kPaused) return;
  out_.push_back(Notice{Rank(0), "continued after step " + paused_step_.ToString()});
  LeaveSavePoints();
}

void ControllerCore::BeginRequestedPause() {
  if (!pause_asked_ || save_ != SaveState::kNone) return;  // what is under way ends in the pause
  gathers_to_save_ = false;
  pause_.Begin();
  ArmPause();
}

// In place of going on from where all have parked.
bool ControllerCore::StaysPaused() {
  if (!pause_asked_ || stop_requested_) return false;
  const auto parked = std::find_if(members_.begin(), members_.end(), [](const Member& m) { return m.save_point; });
  if (parked == members_.end()) return false;  // all have finished
  SetSave(SaveState::kPaused);
  paused_step_ = *parked->save_point;
  out_.push_back(Notice{Rank(0), "paused after step " + paused_step_.ToString() + " on request"});
  return true;
}

// All are there already.
void ControllerCore::SaveWhilePaused() {
  if (save_step_ == paused_step_ && !save_failed_) {
    SettleSave();
    return FinishSave();
  }
  SetSave(SaveState::kGathering);
  MaybeSave();
}

std::string ControllerCore::WhyNotReplaced(Rank rank) const {
  if (!InWorld(rank)) return "there is no rank " + rank.ToString();
  if (stop_requested_) return "the run saves and leaves";
  if (phase_ != Phase::kRunning || incident_)
    return "the run is in " + std::string(PhaseName(phase_)) + (incident_ ? " after a fault" : "") +
           ": ask again once it trains";
  const Member& member = members_.At(rank);
  if (member.life != Life::kReady) return "rank " + rank.ToString() + " has no process yet";
  if (member.respawns >= policy_.max_respawns) return NoRespawnText(rank, member.start_failure);
  for (const int layout : replicas_.LayoutsOf(rank))
    if (replicas_.Holders(layout, rank).size() < 2)
      return "rank " + rank.ToString() + " holds state that no other rank holds: a new process would not get it";
  return "";
}

void ControllerCore::OnReplaceAsked(Rank rank) {
  if (const std::string why = WhyNotReplaced(rank); !why.empty()) {
    out_.push_back(Notice{Rank(0), "not replaced on request: " + why});
    return;
  }
  GiveUp({rank}, FaultKind::kOperator, now_, "an operator asked for a new process of rank " + rank.ToString());
}

}  // namespace kintsugi::core
