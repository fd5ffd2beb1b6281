// Saves (periodic, asked for, dying gasp), orderly pauses and the end of the run.
//
// A pause parks every rank at the boundary after one step: the controller names a step, each rank stores it and answers
// with the newest step it has begun; where one had already gone past, the pause moves to that rank's step, and who had
// parked at the earlier one is sent on. A rank stores the pause before it answers, so that two rounds are enough where
// steps take longer than an answer; where they do not, each further round aims twice as far ahead. An incident ends all
// pauses: agents drop theirs at the lock. What is asked for and overtaken by the end of training is saved there.
#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/core/controller_core.h"

namespace kintsugi::core {
namespace {

// So often is the last chance to save taken before the run ends without.
constexpr int kLastSavesMax = 3;
// A pause that many steps ahead is not overtaken any more.
constexpr int kPauseMarginBits = 10;
// So often does an incident interrupt a save that was asked for before it is given up.
constexpr int kInterruptionsMax = 3;

}  // namespace

void ControllerCore::RequestSave(bool then_end) {
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
  // Who takes a run over does not know yet whether it began: TakenOver says.
  if (!ever_ran_ && then_end && !taking_over_) return End(kExitFailed, "stopped on request before the run began");
  save_requested_ = true;
  save_interruptions_ = 0;
  BeginRequestedSave();
}

void ControllerCore::BeginRequestedSave() {
  // In an incident a request waits until the run goes on; a stop is met by the incident itself (AfterStop).
  if (phase_ != Phase::kRunning || !(save_requested_ || stop_requested_)) return;
  end_after_save_ = end_after_save_ || stop_requested_;
  save_owed_ = std::exchange(save_requested_, false);
  pause_rounds_ = 0;
  if (save_ == SaveState::kVerifying) save_after_verify_ = true;
  if (save_ == SaveState::kNone || save_ == SaveState::kGathering) ArmPause();
}

void ControllerCore::ArmPause() {
  save_ = SaveState::kArming;
  pause_at_ = kintsugi::Step();
  for (const Member& member : members_) pause_at_ = std::max({pause_at_, member.begun, member.acked_begun});
  if (++pause_rounds_ > 2)
    pause_at_ = kintsugi::Step(pause_at_.value() + (uint64_t{1} << std::min(pause_rounds_ - 3, kPauseMarginBits)));
  unacked_.clear();
  for (size_t r = 0; r < members_.size(); ++r) {
    const Rank rank(static_cast<int32_t>(r));
    unacked_.insert(rank);
    SendTo(rank, PauseAt{pause_at_});
    const auto parked_at = members_[r].save_point;
    if (parked_at && *parked_at < pause_at_ && !IsPeriodic(*parked_at)) LeaveSavePoint(rank);
  }
}

bool ControllerCore::SavesAt(kintsugi::Step step) const {
  return policy_.save_every > 0 && step.value() % policy_.save_every == 0;
}

bool ControllerCore::VerifiesAt(kintsugi::Step step) const {
  return policy_.verify_every > 0 && step.value() % policy_.verify_every == 0;
}

void ControllerCore::LeaveSavePoint(Rank rank) {
  Member& member = At(rank);
  member.left_save_point = member.save_point;
  member.save_point.reset();
  hangs_.OnActive(rank, now_);
  SendTo(rank, ContinueOrder{});
}

void ControllerCore::OnPauseAck(Rank rank, const PauseAck& ack) {
  if (save_ != SaveState::kArming || !unacked_.erase(rank)) return;
  At(rank).acked_begun = ack.begun;
  if (!unacked_.empty()) return;
  for (const Member& member : members_)
    if (member.acked_begun > pause_at_) return ArmPause();  // somebody had gone past: move the pause to where it stands
  save_ = SaveState::kGathering;
  MaybeSave();
}

void ControllerCore::OnSavePoint(Rank rank, kintsugi::Step step) {
  Member& member = At(rank);
  member.save_point = step;
  hangs_.OnIdle(rank, now_);
  // Said again after a lost connection, or a pause that has moved on meanwhile.
  const bool passing = save_ == SaveState::kNone ||
                       ((save_ == SaveState::kArming || save_ == SaveState::kGathering) && step < pause_at_);
  if (member.left_save_point == step || (passing && !IsPeriodic(step))) return LeaveSavePoint(rank);
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
  // Replicas that differ are found before they are saved: a checkpoint then never holds what nobody can vouch for.
  if (policy_.verify_every > 0 && verified_step_ != *step) return AskForDigests(SaveState::kVerifying);
  if (save_ == SaveState::kNone && !SavesAt(*step)) return LeaveSavePoints();
  StartWriting(*step, Snapshot());
}

void ControllerCore::StartWriting(kintsugi::Step step, const IncidentSnapshot& snapshot) {
  save_ = SaveState::kWriting;
  save_step_ = step;
  save_failed_ = false;
  std::map<Rank, std::vector<SaveEntry>> work;
  for (SaveAssignment& assignment : PlanSave(snapshot, replicas_))
    work[assignment.writer].push_back(std::move(assignment.entry));
  writers_.clear();
  for (const auto& [rank, entries] : work) writers_.push_back(rank);
  save_deadline_ = now_ + policy_.RepairLimit() + policy_.AnswerSlack();
  for (Rank writer : writers_)
    Ask(writer, PhaseOrder{.phase = Phase::kDump,
                           .step = step,
                           .limit = policy_.RepairLimit(),
                           .partners = writers_,
                           .entries = std::move(work[writer]),
                           .directory = policy_.save_directory});
}

void ControllerCore::OnSaveDone(Rank rank, const PhaseDone& done) {
  Member& member = At(rank);
  const Phase expected = save_ == SaveState::kWriting ? Phase::kDump : Phase::kRename;
  if (!member.waiting || done.phase != expected) return;
  Heard(rank, expected);
  if (done.code != StatusCode::kOk) {
    const std::string text = "the checkpoint of step " + save_step_.ToString() + " could not be written by rank " +
                             rank.ToString() + ": " + done.text;
    out_.push_back(Notice{rank, text});
    member.save_failed = true;
    save_failed_ = true;
    save_failure_ = {save_step_, false, rank, text};
    if (phase_ == Phase::kDump || phase_ == Phase::kRename || end_after_save_) return OnLastSaveFailed(rank, text);
  }
  if (!NobodyWaits()) return;  // whoever writes is waited for, also where the save has failed already
  if (save_ == SaveState::kRenaming && !save_failed_) OnPublished(save_step_, policy_.save_directory);
  if (save_ == SaveState::kRenaming || save_failed_) return FinishSave();
  if (phase_ == Phase::kDump) SetPhase(Phase::kRename, "all parts are written");
  save_ = SaveState::kRenaming;
  save_deadline_ = now_ + policy_.RepairLimit() + policy_.AnswerSlack();
  const auto fit = std::find_if(writers_.begin(), writers_.end(), [this](Rank r) { return !At(r).save_failed; });
  Ask(fit == writers_.end() ? writers_.front() : *fit, PhaseOrder{.phase = Phase::kRename,
                                                                  .step = save_step_,
                                                                  .limit = policy_.RepairLimit(),
                                                                  .partners = writers_,
                                                                  .directory = policy_.save_directory,
                                                                  .moves_latest = !minority_});
}

void ControllerCore::OnLastSaveFailed(Rank rank, const std::string& text) {
  SettleSave();
  // Another attempt, with other writers where a shard has other holders.
  if (++last_save_failures_ >= kLastSavesMax) return EndWithoutSave(text);
  Fault(rank, FaultKind::kHandlerFailed, text, now_);
}

// Told by the publisher, and known by its answer where that word was lost with the connection.
void ControllerCore::OnPublished(kintsugi::Step step, const std::string& directory) {
  const Checkpoint checkpoint{step, directory};
  if (!checkpoints_.empty() && checkpoints_.back() == checkpoint) return;
  std::erase(checkpoints_, checkpoint);  // an older one of that name was written over
  if (checkpoints_.size() == kCheckpointsMax) checkpoints_.erase(checkpoints_.begin());
  checkpoints_.push_back(checkpoint);
  out_.push_back(CheckpointReady{step, directory});
}

void ControllerCore::PutAside(const Checkpoint& checkpoint, const std::string& why) {
  std::erase(checkpoints_, checkpoint);
  checkpoint_damage_ = "the checkpoint of step " + checkpoint.step.ToString() + " in " + checkpoint.directory +
                       " cannot be used: " + why;
}

void ControllerCore::FinishSave() {
  save_ = SaveState::kNone;
  save_deadline_ = TimePoint::Max();
  for (Member& member : members_) SetWaiting(member, false);
  SettleSave();
  const std::string saved = "saved step " + save_step_.ToString() +
                            (minority_ ? " without a majority, not marked as the latest" : "") +
                            "; resume with --resume " + policy_.save_directory;
  if (!hopeless_.empty() && end_after_save_) return End(kExitFailed, hopeless_ + "; " + saved);
  if (end_after_save_) return End(kExitResumable, saved);
  LeaveSavePoints();
}

void ControllerCore::SettleSave() {
  save_owed_ = false;
  out_.push_back(save_failed_ ? save_failure_ : SaveSettled{save_step_, true, Rank(), ""});
}

void ControllerCore::LeaveSavePoints() {
  for (size_t r = 0; r < members_.size(); ++r)
    if (members_[r].save_point) LeaveSavePoint(Rank(static_cast<int32_t>(r)));
  slow_.Start();
  MaybeFinish();
}

void ControllerCore::CancelSave() {
  if (save_ == SaveState::kWriting || save_ == SaveState::kRenaming) save_step_ = kintsugi::Step();
  // Who asked for it gets the save after this incident.
  if (std::exchange(save_owed_, false) && !stop_requested_) {
    save_requested_ = ++save_interruptions_ < kInterruptionsMax;
    if (!save_requested_)
      out_.push_back(SaveSettled{resume_step_, false, Rank(), "incidents interrupted it again and again"});
  }
  save_ = SaveState::kNone;
  end_after_save_ = false;
  verified_step_ = kintsugi::Step();
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
  const bool overtaken = save_ != SaveState::kNone;
  save_ = SaveState::kNone;  // nobody is left to pause
  end_after_save_ = false;
  const bool periodic = last->value() > 0 && SavesAt(*last);
  if ((overtaken || periodic) && save_step_ != *last) {
    save_ = SaveState::kGathering;
    return MaybeSave();
  }
  if (save_owed_) SettleSave();  // of this very step, just before
  choice_ = {*last, StepReason::kUpdateBegun};
  Finish();
}

void ControllerCore::EndWithoutSave(const std::string& why) {
  // A run that was never under way has nothing that a scheduler should come back to: it would end like this again.
  if (!ever_ran_) return End(kExitStartup, why);
  const std::string damage = checkpoint_damage_.empty() ? "" : "; " + checkpoint_damage_;
  if (checkpoints_.empty()) return End(kExitFailed, why + (damage.empty() ? "; there is no checkpoint" : damage));
  const Checkpoint& newest = checkpoints_.back();
  End(hopeless_.empty() ? kExitResumable : kExitFailed,
      why + damage + "; resume from " + newest.directory + " (step " + newest.step.ToString() + ")");
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
  ended_ = {exit_code, text, CommittedStep(exit_code), final_digest_};
  out_.push_back(ended_);
}

kintsugi::Step ControllerCore::CommittedStep(int exit_code) const {
  if (exit_code == kExitSuccess && choice_.step) return *choice_.step;
  if (exit_code == kExitResumable && !checkpoints_.empty()) return checkpoints_.back().step;
  return choice_.step.value_or(kintsugi::Step());
}

void ControllerCore::OnGateEntered(Rank rank, kintsugi::Step step) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kConfirm) return;
  // Said again after a lost connection: the answer was lost with it.
  if (gate_open_ && step <= *gate_open_) return SendTo(rank, GateOpen{step});
  if (At(rank).at_gate != step) ++gate_counts_[step];
  At(rank).at_gate = step;
  if (gate_counts_[step] < policy_.world_size) return;
  gate_counts_.erase(gate_counts_.begin(), gate_counts_.upper_bound(step));
  gate_open_ = step;
  for (size_t r = 0; r < members_.size(); ++r) SendTo(Rank(static_cast<int32_t>(r)), GateOpen{step});
}

}  // namespace kintsugi::core
