// Saves (periodic, asked for, dying gasp), orderly pauses and the end of the run.
//
// A pause parks every rank at the boundary after one step (PauseRounds); where it moves on, whoever had parked at the
// earlier step is sent on. An incident ends all pauses: agents drop theirs at the lock. What is asked for and overtaken by
// the end of training is saved there.
#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/core/controller_core.h"
#include "runtime/core/save_balance.h"

namespace kintsugi::core {
namespace {

// So often is the last chance to save taken before the run ends without.
constexpr int kLastSavesMax = 3;

// Of a shard, as its holder registered it.
uint64_t BytesOf(const RegistrySummary& registry, int layout) {
  uint64_t bytes = 0;
  for (const TensorSummary& tensor : registry.tensors) {
    if (tensor.layout != layout) continue;
    uint64_t elements = 1;
    for (const int64_t length : tensor.local_shape) elements *= static_cast<uint64_t>(length);
    if (tensor.flattened_range)
      elements = static_cast<uint64_t>(tensor.flattened_range->stop - tensor.flattened_range->start);
    bytes += elements * DTypeSize(tensor.dtype);
  }
  return bytes;
}

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
  save_request_.Ask();
  BeginRequestedSave();
}

void ControllerCore::BeginRequestedSave() {
  // In an incident a request waits until the run goes on; a stop is met by the incident itself (AfterStop).
  if (phase_ != Phase::kRunning) return;
  if (!save_request_.waits() && !stop_requested_) return BeginRequestedPause();
  end_after_save_ = end_after_save_ || stop_requested_;
  save_request_.Begin();
  gathers_to_save_ = true;
  if (save_ == SaveState::kPaused) return SaveWhilePaused();
  pause_.Begin();
  if (save_ == SaveState::kVerifying) save_after_verify_ = true;
  if (save_ == SaveState::kNone || save_ == SaveState::kGathering) ArmPause();
}

void ControllerCore::ArmPause() {
  SetSave(SaveState::kArming);
  kintsugi::Step begun;
  for (const Member& member : members_) begun = std::max(begun, member.begun);
  const kintsugi::Step at = pause_.Arm(begun);
  for (size_t r = 0; r < members_.size(); ++r) {
    const Rank rank(static_cast<int32_t>(r));
    SendTo(rank, PauseAt{at});
    const auto parked_at = members_[r].save_point;
    if (parked_at && *parked_at < at && !IsPeriodic(*parked_at)) LeaveSavePoint(rank);
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
  if (save_ != SaveState::kArming) return;
  const PauseRounds::Answer answer = pause_.Take(rank, ack.begun);
  if (answer == PauseRounds::Answer::kOvertaken) return ArmPause();
  if (answer != PauseRounds::Answer::kStored) return;
  SetSave(SaveState::kGathering);
  MaybeSave();
}

void ControllerCore::OnSavePoint(Rank rank, kintsugi::Step step) {
  Member& member = At(rank);
  member.save_point = step;
  hangs_.OnIdle(rank, now_);
  // Said again after a lost connection, or a pause that has moved on meanwhile.
  const bool passing = InLoops(save_) && (save_ == SaveState::kNone || step < pause_.at());
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
  const bool asked_for = save_ == SaveState::kGathering && gathers_to_save_;
  if (save_ == SaveState::kGathering && !asked_for && !IsPeriodic(*step)) return LeaveSavePoints();
  // Replicas that differ are found before they are saved: a checkpoint then never holds what nobody can vouch for.
  if (policy_.verify_every > 0 && verified_step_ != *step) return AskForDigests(SaveState::kVerifying);
  if (!asked_for && !SavesAt(*step)) return LeaveSavePoints();
  StartWriting(*step, Snapshot());
}

void ControllerCore::StartWriting(kintsugi::Step step, const IncidentSnapshot& snapshot) {
  SetSave(SaveState::kWriting);
  save_step_ = step;
  save_failed_ = false;
  std::map<Rank, std::vector<SaveEntry>> work;
  const auto bytes_of = [this](Rank holder, int layout) { return BytesOf(At(holder).registry, layout); };
  for (SaveAssignment& assignment : BalanceSave(PlanSave(snapshot, replicas_), snapshot, bytes_of))
    work[assignment.writer].push_back(std::move(assignment.entry));
  writers_.clear();
  for (const auto& [rank, entries] : work) writers_.push_back(rank);
  KINTSUGI_CHECK(!writers_.empty(), "nobody writes the checkpoint of step " + step.ToString());
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
  if (save_ == SaveState::kRenaming && !save_failed_) {
    OnPublished(save_step_, policy_.save_directory);
    out_.push_back(SaveSettled{save_step_, true, rank, done.text});
  }
  if (save_ == SaveState::kRenaming || save_failed_) return FinishSave();
  if (phase_ == Phase::kDump) SetPhase(Phase::kRename, "all parts are written");
  SetSave(SaveState::kRenaming);
  save_deadline_ = now_ + policy_.RepairLimit() + policy_.AnswerSlack();
  const auto fit = std::find_if(writers_.begin(), writers_.end(), [this](Rank r) { return !At(r).save_failed; });
  Ask(fit == writers_.end() ? writers_.front() : *fit, PhaseOrder{.phase = Phase::kRename,
                                                                  .step = save_step_,
                                                                  .limit = policy_.RepairLimit(),
                                                                  .partners = writers_,
                                                                  .directory = policy_.save_directory,
                                                                  .moves_latest = !majority_.minority()});
}

void ControllerCore::OnLastSaveFailed(Rank rank, const std::string& text) {
  SettleSave();
  // Another attempt, with other writers where a shard has other holders.
  if (++last_save_failures_ >= kLastSavesMax) return EndWithoutSave(text);
  Fault(rank, FaultKind::kHandlerFailed, text, now_);
}

// Told by the publisher, and known by its answer where that word was lost with the connection.
void ControllerCore::OnPublished(kintsugi::Step step, const std::string& directory) {
  if (checkpoints_.Publish({step, directory})) out_.push_back(CheckpointReady{step, directory});
}

void ControllerCore::FinishSave() {
  SetSave(SaveState::kNone);
  save_deadline_ = TimePoint::Max();
  members_.StopWaiting();
  if (save_failed_)
    SettleSave();
  else
    save_request_.Answer();  // what was published is settled already
  const std::string saved = "saved step " + save_step_.ToString() +
                            (majority_.minority() ? " without a majority, not marked as the latest" : "") +
                            "; resume with --resume " + policy_.save_directory;
  if (!repeats_.hopeless().empty() && end_after_save_) return End(kExitFailed, repeats_.hopeless() + "; " + saved);
  if (end_after_save_) return End(kExitResumable, saved);
  LeaveSavePoints();
}

void ControllerCore::SettleSave() {
  save_request_.Answer();
  out_.push_back(save_failed_ ? save_failure_ : SaveSettled{save_step_, true, Rank(), ""});
}

void ControllerCore::LeaveSavePoints() {
  if (StaysPaused()) return;
  SetSave(SaveState::kNone);  // where all had come for a pause that nobody asks for any more
  for (size_t r = 0; r < members_.size(); ++r)
    if (members_[r].save_point) LeaveSavePoint(Rank(static_cast<int32_t>(r)));
  slow_.Start();
  MaybeFinish();
}

void ControllerCore::CancelSave() {
  if (Writes(save_)) save_step_ = kintsugi::Step();
  // Who asked for it gets the save after this incident.
  if (save_request_.Interrupt(stop_requested_))
    out_.push_back(SaveSettled{resume_step_, false, Rank(), "incidents interrupted it again and again"});
  SetSave(SaveState::kNone);
  end_after_save_ = false;
  verified_step_ = kintsugi::Step();
  pause_.Drop();
}

void ControllerCore::MaybeFinish() {
  if (phase_ != Phase::kRunning) return;
  std::optional<kintsugi::Step> last;
  for (const Member& member : members_) {
    if (!member.finished) return MaybeSave();  // others may wait at a save point for this one
    last = std::max(last.value_or(kintsugi::Step()), *member.finished);
  }
  if (!InLoops(save_)) return;
  const bool overtaken = save_ != SaveState::kNone && gathers_to_save_;
  SetSave(SaveState::kNone);  // nobody is left to pause
  end_after_save_ = false;
  const bool periodic = last->value() > 0 && SavesAt(*last);
  if ((overtaken || periodic) && save_step_ != *last) {
    gathers_to_save_ = true;
    SetSave(SaveState::kGathering);
    return MaybeSave();
  }
  if (save_request_.owed()) SettleSave();  // of this very step, just before
  choice_ = {*last, StepReason::kUpdateBegun};
  Finish();
}

void ControllerCore::EndWithoutSave(const std::string& why) {
  // A run that was never under way has nothing that a scheduler should come back to: it would end like this again.
  if (!ever_ran_) return End(kExitStartup, why);
  const std::string damage = checkpoints_.damage().empty() ? "" : "; " + checkpoints_.damage();
  const Checkpoint* newest = checkpoints_.newest();
  if (!newest) return End(kExitFailed, why + (damage.empty() ? "; there is no checkpoint" : damage));
  End(repeats_.hopeless().empty() ? kExitResumable : kExitFailed,
      why + damage + "; resume from " + newest->directory + " (step " + newest->step.ToString() + ")");
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
  if (const Checkpoint* newest = checkpoints_.newest(); exit_code == kExitResumable && newest) return newest->step;
  return choice_.step.value_or(kintsugi::Step());
}

void ControllerCore::OnGateEntered(Rank rank, kintsugi::Step step) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kConfirm) return;
  const ControlGate::Answer answer = gate_.Enter(rank, step);
  if (answer == ControlGate::Answer::kOpenAlready) return SendTo(rank, GateOpen{step});
  if (answer != ControlGate::Answer::kOpens) return;
  const GateOpen open{*gate_.newest_open()};
  for (size_t r = 0; r < members_.size(); ++r) SendTo(Rank(static_cast<int32_t>(r)), open);
}

}  // namespace kintsugi::core
