#include "runtime/core/saves.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

// So often is the last chance to save taken before the run ends without.
constexpr int kLastSavesMax = 3;

}  // namespace

Saves::Saves(Board& board, RunEnd& end, Faults& faults, Comparison& comparison, const Survey& survey, Scaling& scaling,
             HangWatch& hangs, CheckpointList& checkpoints, const Repeats& repeats)
    : board_(board),
      end_(end),
      faults_(faults),
      comparison_(comparison),
      survey_(survey),
      scaling_(scaling),
      repeats_(repeats),
      points_(board, hangs),
      writer_(board, checkpoints),
      replacements_(board),
      pause_asked_(board.policy.takes_over && board.policy.pause_asked) {}

std::optional<Step> Saves::paused_at() const {
  return board_.save() == SaveState::kPaused ? std::optional(paused_step_) : std::nullopt;
}

void Saves::Request(bool then_end) {
  if (then_end) {
    if (!board_.course.leaving) board_.course.leave_by = board_.now() + board_.policy.grace;
    board_.course.leaving = true;
    if (scaling_.waits() && board_.members.crew() == board_.members.kept()) scaling_.Refuse("the run saves and leaves");
    // Half of the grace period for reaching the boundary, the rest for writing.
    if (stop_deadline_ == TimePoint::Max()) stop_deadline_ = board_.now() + board_.policy.grace / 2;
    writer_.Hurry();
  }
  if (board_.policy.save_directory.empty()) {
    if (then_end) return end_.End(kExitFailed, "stopped on request; nothing was saved: no save directory is set");
    return board_.Note(Rank(0), "save refused: no save directory is set (start with --save-dir)");
  }
  // A controller that takes a run over does not know yet whether it began: once it does, it asks again.
  if (!board_.course.ever_ran && then_end && !board_.course.listening)
    return end_.EndUnbegun("stopped on request before the run began");
  request_.Ask();
  // Whoever is still to come may come too late for the grace period: what the others hold is saved.
  if (then_end && board_.phase() == Phase::kAdmit && board_.incident.open())
    return faults_.Lock("a stop was asked for while ranks are awaited");
  BeginRequested();
}

void Saves::BeginRequested() {
  // In an incident a request waits until the run goes on; a stop is met by the incident itself.
  if (board_.phase() != Phase::kRunning) return;
  replacements_.ForgetMet();
  if (!board_.course.leaving && replacements_.NeedsSave()) request_.Ask();
  if (!request_.waits() && !board_.course.leaving)
    return replacements_.waits() || scaling_.IsDue() ? BeginReplacing() : BeginPause();
  end_after_save_ = end_after_save_ || board_.course.leaving;
  request_.Begin();
  gathers_to_save_ = true;
  if (board_.save() == SaveState::kPaused) return SaveWhilePaused();
  points_.Begin();
  if (board_.save() == SaveState::kVerifying) save_after_verify_ = true;
  if (board_.save() == SaveState::kNone || board_.save() == SaveState::kGathering) points_.Arm();
}

// ---- pauses ------------------------------------------------------------------------------------------------------

void Saves::AskForPause() {
  if (board_.course.leaving) return;
  pause_asked_ = true;
  BeginRequested();
}

void Saves::AskToContinue() {
  if (!std::exchange(pause_asked_, false) || board_.save() != SaveState::kPaused) return;
  board_.Note(Rank(0), "continued after step " + paused_step_.ToString());
  LeavePoints();
}

void Saves::BeginPause() {
  if (!pause_asked_ || board_.save() != SaveState::kNone) return;  // what is under way ends in the pause
  gathers_to_save_ = false;
  points_.Begin();
  points_.Arm();
}

// In place of going on from where all have parked.
bool Saves::StaysPaused() {
  if (!pause_asked_ || board_.course.leaving) return false;
  const std::optional<Step> parked = points_.ParkedAt();
  if (!parked) return false;  // all have finished
  board_.SetSave(SaveState::kPaused);
  paused_step_ = *parked;
  board_.Note(Rank(0), "paused after step " + paused_step_.ToString() + " on request");
  return true;
}

// All are there already.
void Saves::SaveWhilePaused() {
  if (writer_.step() == paused_step_ && !writer_.failed()) {
    Settle();
    return Finish();
  }
  board_.SetSave(SaveState::kGathering);
  MaybeSave();
}

void Saves::OnPauseAck(Rank rank, const PauseAck& ack) {
  if (points_.OnAck(rank, ack)) MaybeSave();
}

void Saves::OnParked(Rank rank, Step step) {
  if (points_.OnParked(rank, step)) MaybeSave();
}

void Saves::LeavePoints() {
  if (Replaces() || Scales() || StaysPaused()) return;
  board_.SetSave(SaveState::kNone);  // where all had come for a pause that nobody asks for any more
  points_.LeaveAll();
  MaybeFinish();
}

// ---- new processes that somebody asks for ------------------------------------------------------------------------

void Saves::AskToReplace(Rank rank) {
  if (const std::string why = replacements_.WhyNot(rank); !why.empty()) return board_.Act(ReplaceRefused{rank, why});
  replacements_.Ask(rank);
  BeginRequested();
}

void Saves::AskToDrain(Rank first, int ranks) {
  if (const std::string why = replacements_.WhyNotDrained(first, ranks); !why.empty())
    return board_.Act(ReplaceRefused{first, why});
  replacements_.AskToDrain(first, ranks);
  BeginRequested();
}

// Nothing is written: all meet at a boundary, and compare where that was asked for. What is under way ends in it too.
void Saves::BeginReplacing() {
  gathers_to_save_ = false;
  if (board_.save() == SaveState::kPaused) {
    board_.SetSave(SaveState::kGathering);
    return MaybeSave();
  }
  if (board_.save() != SaveState::kNone) return;
  points_.Begin();
  points_.Arm();
}

// In place of going on from where all have parked. What the process holds is that of the step now, and is kept beyond it.
bool Saves::Replaces() {
  const std::optional<Step> parked = points_.ParkedAt();
  if (board_.course.leaving || board_.phase() != Phase::kRunning || !parked) return false;
  replacements_.ForgetMet();
  if (!replacements_.waits()) return false;
  if (replacements_.NeedsSave() && (writer_.step() != *parked || writer_.failed())) {
    // Asked for while others were on their way: the next boundary is its.
    if (writer_.failed()) RefuseReplacement("what was to be saved before could not be: " + writer_.failure());
    return false;
  }
  const Replacements::Request request = replacements_.Take();
  StandAt(*parked);
  // Before their processes are asked for anew: none of those begins there.
  if (request.drains) board_.Act(NodeCutOff{request.ranks.front(), request.text});
  faults_.GiveUp(request.ranks, FaultKind::kOperator, board_.now(), request.text);
  return true;
}

// Whoever parks tells of the next step before, which is none that is lost.
void Saves::StandAt(Step step) {
  for (Rank rank : board_.members.ranks()) board_.At(rank).begun = step;
}

// ---- other ranks that somebody asks for --------------------------------------------------------------------------

void Saves::AskToScale(int ranks) {
  if (const std::string why = scaling_.WhyNot(ranks); !why.empty()) return board_.Act(ScaleRefused{ranks, why});
  scaling_.Ask(ranks);
  BeginRequested();
}

// In place of going on from where all have parked: nothing is wrong with anybody, and the crew is changed as after a fault.
bool Saves::Scales() {
  if (board_.course.leaving || board_.phase() != Phase::kRunning || !points_.ParkedAt() || !scaling_.IsDue())
    return false;
  const std::string text = scaling_.Why();
  StandAt(*points_.ParkedAt());
  faults_.Record(board_.members.ranks().front(), FaultKind::kOperator, text, board_.now());
  board_.incident.BlameNobody();
  faults_.Lock(text);
  return true;
}

void Saves::RefuseReplacement(const std::string& why) {
  board_.Act(ReplaceRefused{replacements_.Take().ranks.front(), why});
}

void Saves::CheckReplacements() {
  if (board_.phase() != Phase::kRunning || !InLoops(board_.save())) return;
  if (scaling_.IsLate()) scaling_.Refuse(scaling_.WhyLate());
  if (!replacements_.IsLate()) return;
  RefuseReplacement("the ranks did not come to the end of a step within " + WholeSeconds(board_.policy.step_timeout));
}

// ---- saves -------------------------------------------------------------------------------------------------------

void Saves::MaybeSave() {
  const SaveState save = board_.save();
  if (board_.phase() != Phase::kRunning || (save != SaveState::kNone && save != SaveState::kGathering)) return;
  const std::optional<Step> step = points_.AllAt();
  if (!step) return;
  board_.plan.choice = {*step, StepReason::kUpdateBegun};
  const bool asked_for = save == SaveState::kGathering && gathers_to_save_;
  // Nor is one of two copies given up before it is known that they are the same.
  const bool replaces = (replacements_.waits() || scaling_.IsDue()) && !board_.course.leaving;
  if (save == SaveState::kGathering && !asked_for && !replaces && !points_.IsPeriodic(*step)) return LeavePoints();
  // Replicas that differ are found before they are saved: a checkpoint then never holds what nobody can vouch for.
  if (board_.policy.verify_every > 0 && verified_step_ != *step) return Compare(SaveState::kVerifying);
  if (!asked_for && !points_.SavesAt(*step)) return LeavePoints();
  Write(*step, survey_.Take());
}

void Saves::Write(Step step, const IncidentFacts& facts) {
  KINTSUGI_CHECK(board_.policy.verify_every == 0 || board_.phase() == Phase::kDump || verified_step_ == step,
                 "replicas are compared between steps, and step " + step.ToString() + " is saved without");
  writer_.Start(step, facts);
}

void Saves::Compare(SaveState state) {
  save_after_verify_ = board_.save() == SaveState::kGathering;
  comparison_.Ask(state);
}

void Saves::OnDigests(Rank rank, const PhaseDone& done) {
  const bool final = board_.save() == SaveState::kFinalVerify;
  if (!comparison_.OnAnswer(rank, done) || !comparison_.Agree()) return;
  comparison_.Remember();
  if (final) return end_.EndFinished(comparison_.Fold());
  verified_step_ = *board_.plan.choice.step;
  if (save_after_verify_) board_.SetSave(SaveState::kGathering);
  MaybeSave();
}

void Saves::OnWritten(Rank rank, const PhaseDone& done) {
  const bool is_last = !board_.InTraining() || end_after_save_;
  const CheckpointWriter::Answer answer = writer_.Take(rank, done, is_last);
  if (answer != CheckpointWriter::Answer::kLastFailed && answer != CheckpointWriter::Answer::kEnded) return;
  // A stop that came after somebody had failed has made this the last one.
  if (writer_.failed() && is_last) return OnLastFailed(writer_.Outcome().rank);
  Finish();
}

void Saves::RanOut() {
  const std::string_view handler = board_.save() == SaveState::kWriting ? "save" : "rename";
  const Duration waited = writer_.waited();
  const std::string text = writer_.RanOut();
  if (!board_.incident.open()) {
    faults_.Record(board_.members.ranks().front(), FaultKind::kStalled, text, board_.now());
    board_.incident.BlameNobody();
  }
  board_.incident.NoteRanOut(handler, std::max(waited, board_.policy.StopLimit()));
  faults_.Lock(text);
}

void Saves::OnLastFailed(Rank rank) {
  Settle();
  // Another attempt, with other writers where a shard has other holders.
  if (++last_save_failures_ >= kLastSavesMax) return end_.EndWithoutSave(writer_.failure());
  faults_.Fault(rank, FaultKind::kHandlerFailed, writer_.failure(), board_.now());
}

void Saves::Finish() {
  board_.SetSave(SaveState::kNone);
  board_.SetSaveDeadline(TimePoint::Max());
  board_.members.StopWaiting();
  if (writer_.failed())
    Settle();
  else
    request_.Answer();  // what was published is settled already
  if (!end_after_save_) return LeavePoints();
  KINTSUGI_CHECK(!writer_.failed(), "a last save that failed ends the run as if it were saved");
  const std::string saved = "saved step " + writer_.step().ToString() +
                            (board_.majority.minority() ? " without a majority, not marked as the latest" : "") +
                            "; resume with --resume " + board_.policy.save_directory;
  if (!repeats_.hopeless().empty()) return end_.End(kExitFailed, repeats_.hopeless() + "; " + saved);
  end_.End(kExitResumable, saved);
}

void Saves::Settle() {
  request_.Answer();
  board_.Act(writer_.Outcome());
}

void Saves::Cancel() {
  writer_.Cancel();
  // Who asked for it gets the save after this incident.
  if (request_.Interrupt(board_.course.leaving))
    board_.Act(SaveSettled{board_.course.resume_step, false, Rank(), "incidents interrupted it again and again"});
  board_.SetSave(SaveState::kNone);
  end_after_save_ = false;
  verified_step_ = Step();
  points_.Drop();
}

// ---- the end -----------------------------------------------------------------------------------------------------

void Saves::MaybeFinish() {
  if (board_.phase() != Phase::kRunning) return;
  std::optional<Step> last;
  for (const Member& member : board_.members) {
    if (!member.finished) return MaybeSave();  // others may wait at a save point for this one
    last = std::max(last.value_or(Step()), *member.finished);
  }
  if (!InLoops(board_.save())) return;
  const bool overtaken = board_.save() != SaveState::kNone && gathers_to_save_;
  board_.SetSave(SaveState::kNone);  // nobody is left to pause
  end_after_save_ = false;
  if (const std::string why = WhyNotCompared(*last); !why.empty()) {
    if (request_.owed() || overtaken)
      board_.Act(SaveSettled{*last, false, Rank(), why + ": what they hold is of no step"}), request_.Answer();
    board_.plan.choice = {*last, StepReason::kUpdateBegun};
    return end_.EndNotCompared(why);
  }
  const bool periodic = last->value() > 0 && points_.SavesAt(*last);
  if ((overtaken || periodic) && writer_.step() != *last) {
    gathers_to_save_ = true;
    board_.SetSave(SaveState::kGathering);
    return MaybeSave();
  }
  if (request_.owed()) Settle();  // of this very step, just before
  board_.plan.choice = {*last, StepReason::kUpdateBegun};
  Compare(SaveState::kFinalVerify);
}

std::string Saves::WhyNotCompared(Step last) const {
  const std::vector<Rank> changed = board_.members.Where([](const Member& m) { return m.finished_changed; });
  if (changed.empty()) return "";
  return "rank " + changed.front().ToString() +
         (changed.size() > 1 ? " and " + std::to_string(changed.size() - 1) + " more" : "") +
         " changed registered tensors behind the last step, " + last.ToString();
}

bool Saves::CheckGrace() {
  // A handler may take longer than there is: what others hold is saved without it. Its stop takes time, too.
  const bool repairs = board_.phase() >= Phase::kClean && board_.phase() <= Phase::kRollback && board_.course.ever_ran;
  const TimePoint until = repairs ? stop_deadline_ - board_.policy.grace / 4 : stop_deadline_;
  if (board_.now() < until || (board_.phase() != Phase::kRunning && !repairs) || Writes(board_.save())) return false;
  stop_deadline_ = TimePoint::Max();
  const std::string text = "the grace period is nearly over: saving at once";
  if (repairs) return faults_.Lock(text), true;
  faults_.Record(Rank(0), FaultKind::kOperator, text, board_.now());
  board_.incident.BlameNobody();
  faults_.Lock(text);
  return true;
}

}  // namespace kintsugi::core
