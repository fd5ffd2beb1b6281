// Saves (periodic, asked for, dying gasp), orderly pauses and the end of the run.
//
// A pause parks every rank at the boundary after one step: the controller names a step, each rank stores it and answers
// with the newest step it has begun; where one had already gone past, the pause moves to that rank's step. A rank stores
// the pause before it answers, so after at most two rounds all will park at the same boundary.
#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/core/controller_core.h"

namespace kintsugi::core {

void ControllerCore::BeginSave(bool then_end) {
  if (then_end) {
    stop_requested_ = true;
    // Half of the grace period for reaching the boundary, the rest for writing.
    if (stop_deadline_ == TimePoint::Max()) stop_deadline_ = now_ + policy_.grace / 2;
  }
  if (policy_.save_directory.empty()) {
    if (then_end) return End(kExitFailed, "stopped on request; nothing was saved: no save directory is set");
    out_.push_back(Notice{Rank(0), "save refused: no save directory is set (start with --save-dir)"});
    return;
  }
  if (phase_ != Phase::kRunning) {
    if (!ever_ran_ && then_end) return End(kExitFailed, "stopped on request before the run began");
    return;  // asked for again when the incident is over
  }
  if (save_ != SaveState::kNone && save_ != SaveState::kGathering) {
    end_after_save_ = end_after_save_ || then_end;
    return;
  }
  end_after_save_ = end_after_save_ || then_end;
  save_ = SaveState::kArming;
  pause_at_ = kintsugi::Step();
  for (const Member& member : members_) pause_at_ = std::max(pause_at_, member.begun);
  unacked_.clear();
  for (size_t r = 0; r < members_.size(); ++r) {
    unacked_.insert(Rank(static_cast<int32_t>(r)));
    SendTo(Rank(static_cast<int32_t>(r)), PauseAt{pause_at_});
  }
}

void ControllerCore::OnPauseAck(Rank rank, const PauseAck& ack) {
  At(rank).begun = std::max(At(rank).begun, ack.begun);
  if (save_ != SaveState::kArming || !unacked_.erase(rank) || !unacked_.empty()) return;
  kintsugi::Step newest = pause_at_;
  for (const Member& member : members_) newest = std::max(newest, member.begun);
  if (newest > pause_at_) {
    save_ = SaveState::kNone;
    return BeginSave(end_after_save_);  // somebody had gone past: move the pause to where it stands
  }
  save_ = SaveState::kGathering;
  MaybeSave();
}

void ControllerCore::OnSavePoint(Rank rank, kintsugi::Step step) {
  At(rank).save_point = step;
  MaybeSave();
}

void ControllerCore::MaybeSave() {
  if (phase_ != Phase::kRunning || (save_ != SaveState::kNone && save_ != SaveState::kGathering)) return;
  std::optional<kintsugi::Step> step;
  for (const Member& member : members_) {
    const auto at = member.save_point ? member.save_point : member.finished;
    if (!at || (step && *step != *at)) return;
    step = at;
  }
  choice_ = {*step, StepReason::kUpdateBegun};
  StartWriting(*step, Snapshot());
}

void ControllerCore::StartWriting(kintsugi::Step step, const IncidentSnapshot& snapshot) {
  save_ = SaveState::kWriting;
  save_step_ = step;
  std::map<Rank, std::vector<SaveEntry>> work;
  for (SaveAssignment& assignment : PlanSave(snapshot, replicas_))
    work[assignment.writer].push_back(std::move(assignment.entry));
  std::vector<Rank> writers;
  for (const auto& [rank, entries] : work) writers.push_back(rank);
  deadline_ = now_ + policy_.RepairLimit();
  for (Rank writer : writers) {
    At(writer).waiting = true;
    At(writer).wait_began = now_;
    SendTo(writer, PhaseOrder{.phase = Phase::kDump,
                              .step = step,
                              .limit = policy_.RepairLimit(),
                              .partners = writers,
                              .entries = std::move(work[writer]),
                              .directory = policy_.save_directory});
  }
}

void ControllerCore::EnterDump() {
  SetPhase(Phase::kDump, "survivors write a checkpoint");
  end_after_save_ = true;
  StartWriting(*choice_.step, Snapshot());
}

void ControllerCore::OnSaveDone(Rank rank, const PhaseDone& done) {
  Member& member = At(rank);
  const Phase expected = save_ == SaveState::kWriting ? Phase::kDump : Phase::kRename;
  if (!member.waiting || done.phase != expected) return;
  Heard(rank, expected);
  if (done.code != StatusCode::kOk) {
    out_.push_back(Notice{rank, std::string(PhaseName(expected)) + " failed: " + done.text});
    if (phase_ != Phase::kRunning)
      return End(kExitFailed, "the checkpoint could not be written by rank " + rank.ToString() + ": " + done.text);
    if (end_after_save_) return End(kExitFailed, "the run was to be saved and left, but: " + done.text);
    return FinishSave();  // a periodic save that fails costs that save, not the run
  }
  if (!NobodyWaits()) return;
  if (save_ == SaveState::kRenaming) return FinishSave();
  if (phase_ == Phase::kDump) SetPhase(Phase::kRename, "all parts are written");
  save_ = SaveState::kRenaming;
  std::vector<Rank> writers;
  for (const SaveAssignment& assignment : PlanSave(Snapshot(), replicas_)) writers.push_back(assignment.writer);
  std::sort(writers.begin(), writers.end());
  writers.erase(std::unique(writers.begin(), writers.end()), writers.end());
  Member& publisher = At(writers.front());
  publisher.waiting = true;
  publisher.wait_began = now_;
  deadline_ = now_ + policy_.RepairLimit();
  SendTo(writers.front(), PhaseOrder{.phase = Phase::kRename,
                                     .step = save_step_,
                                     .limit = policy_.RepairLimit(),
                                     .partners = writers,
                                     .directory = policy_.save_directory});
}

void ControllerCore::FinishSave() {
  save_ = SaveState::kNone;
  deadline_ = TimePoint::Max();
  for (Member& member : members_) member.waiting = false;
  if (end_after_save_)
    return End(kExitResumable, "saved step " + save_step_.ToString() + "; resume with --resume " +
                                   policy_.save_directory);
  for (size_t r = 0; r < members_.size(); ++r) {
    members_[r].save_point.reset();
    SendTo(Rank(static_cast<int32_t>(r)), ContinueOrder{});
  }
  MaybeFinish();
}

void ControllerCore::CancelSave() {
  save_ = SaveState::kNone;
  end_after_save_ = false;
  unacked_.clear();
}

void ControllerCore::MaybeFinish() {
  if (phase_ != Phase::kRunning) return;
  std::optional<kintsugi::Step> last;
  for (const Member& member : members_) {
    if (!member.finished) return MaybeSave();  // others may wait at a save point for this one
    last = std::max(last.value_or(kintsugi::Step()), *member.finished);
  }
  if (save_ != SaveState::kNone && save_ != SaveState::kArming && save_ != SaveState::kGathering) return;
  save_ = SaveState::kNone;  // nobody is left to pause
  end_after_save_ = false;
  const bool due = policy_.save_every > 0 && last->value() > 0 && last->value() % policy_.save_every == 0;
  if (due && save_step_ != *last) return MaybeSave();
  choice_ = {*last, StepReason::kUpdateBegun};
  Finish();
}

void ControllerCore::End(int exit_code, const std::string& text) {
  if (incident_) CloseIncident();
  SetPhase(Phase::kEnded, text);
  for (size_t r = 0; r < members_.size(); ++r) {
    const Rank rank(static_cast<int32_t>(r));
    if (members_[r].life == Life::kReady || members_[r].connected)
      SendTo(rank, EndOrder{exit_code, text});
    else if (members_[r].life == Life::kStarting && policy_.can_spawn)
      out_.push_back(KillProcess{rank, members_[r].incarnation, "the run has ended"});
  }
  out_.push_back(RunEnded{exit_code, text, CommittedStep(exit_code), final_digest_});
}

kintsugi::Step ControllerCore::CommittedStep(int exit_code) const {
  if (exit_code == kExitSuccess && choice_.step) return *choice_.step;
  if (exit_code == kExitResumable && !checkpoint_.empty()) return checkpoint_step_;
  return choice_.step.value_or(kintsugi::Step());
}

void ControllerCore::OnGateEntered(Rank rank, kintsugi::Step step) {
  if (phase_ != Phase::kRunning) return;
  At(rank).at_gate = step;
  for (const Member& member : members_)
    if (!member.at_gate || *member.at_gate != step) return;
  for (size_t r = 0; r < members_.size(); ++r) SendTo(Rank(static_cast<int32_t>(r)), GateOpen{step});
}

}  // namespace kintsugi::core
