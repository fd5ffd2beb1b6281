// Faults that only their repetition or their duration shows: a step that does not move, and a rank that dies or fails
// at the same step again and again; and ranks that are slow, which are no fault yet.
//
// A hang is met as any fault is: all ranks are stopped. Whoever comes out of its step by that goes on with the others
// (a collective that waited for ever is retried); whoever does not is killed at the end of STOP and replaced. A rank
// that hangs at the same step once more is not asked again where all others are in the gate, so that it must be the
// one; elsewhere it may wait for a neighbour that hangs, and is asked twice. What fails at one step over and over is no
// fault of the hardware: the run saves what it holds and ends, since repairing it would go on for ever.
#include <algorithm>
#include <utility>

#include "runtime/core/controller_core.h"

namespace kintsugi::core {
namespace {

// So often may one rank die or fail, or all hang, at one step.
constexpr int kTimesAtOneStep = 3;
// So often may trainers fail at one step, whichever rank it was; and collectives, with nobody to blame.
constexpr int kFailuresAtOneStep = 9;
// So often is a rank asked to come out of a hang at one step where another may be the cause.
constexpr int kAskedAtOneStep = 2;

std::string Times(int count) { return std::to_string(count) + " times"; }

}  // namespace

void ControllerCore::WatchForHangs() {
  hangs_.Start(now_, resume_step_);
  slow_.Start();
  for (size_t r = 0; r < members_.size(); ++r)
    if (members_[r].finished || members_[r].save_point) hangs_.OnIdle(Rank(static_cast<int32_t>(r)), now_);
}

void ControllerCore::OnPlace(Rank rank, const Progress& place) {
  hangs_.OnPlace(rank, place, now_);
  if (phase_ != Phase::kRunning || !slow_.OnPlace(rank, place, now_)) return;
  const auto step_time = hangs_.step_time();
  if (!step_time) return;
  for (const SlowRanks::News& news : slow_.Take(*step_time))
    out_.push_back(Notice{news.rank, ToString(news, *step_time)});
}

void ControllerCore::CheckHangs() {
  const bool in_loops = save_ == SaveState::kNone || save_ == SaveState::kArming || save_ == SaveState::kGathering;
  if (phase_ != Phase::kRunning || unresumed_ > 0 || !in_loops) return;
  const std::optional<Hang> hang = hangs_.OnTick(now_);
  if (!hang) return;
  const kintsugi::Step step(hang->place.step);
  hangs_at_step_ = step == hang_step_ ? hangs_at_step_ + 1 : 1;
  hang_step_ = step;
  const std::string text = hang->ToString();
  const TimePoint since = now_ - hang->still;
  if (BlameWhoLeft(*hang)) return;
  if (!hang->all) return BlameHang(*hang);
  // Nobody is to blame: who does not come out of STOP will be.
  if (hangs_at_step_ >= kTimesAtOneStep)
    hopeless_ = text + ", " + Times(hangs_at_step_) + ": this is a deadlock in the program";
  if (incident_) CloseIncident();
  OpenIncident(Rank(0), FaultKind::kHang, text, since);
  incident_->ranks.clear();
  SetPhase(Phase::kConfirm, text);
  EnterLock(text);
}

void ControllerCore::BlameHang(const Hang& hang) {
  const std::string text = hang.ToString();
  const TimePoint since = now_ - hang.still;
  const kintsugi::Step step(hang.place.step);
  std::vector<Rank> asked;
  for (Rank rank : hang.ranks) {
    Member& member = At(rank);
    member.hangs = member.hang_step == step ? member.hangs + 1 : 1;
    member.hang_step = step;
    if (member.hangs > (hang.certain ? 1 : kAskedAtOneStep)) asked.push_back(rank);
  }
  if (!asked.empty()) return GiveUp(asked, FaultKind::kHang, since, text + ", not for the first time");
  for (Rank rank : hang.ranks) RecordFault(rank, FaultKind::kHang, text, since);
  EnterLock(text);
}

// Ranks that wait for one that has left its loop hang, and none of them is to blame: all run the same steps.
bool ControllerCore::BlameWhoLeft(const Hang& hang) {
  const std::vector<Rank> finished = Ranks([](const Member& m) { return m.finished.has_value(); });
  std::vector<Rank> left;
  for (Rank rank : finished)
    if (*At(rank).finished < kintsugi::Step(hang.place.step)) left.push_back(rank);
  if (left.empty()) return false;
  const kintsugi::Step after = *At(left.front()).finished;
  const std::string text = "its loop ended after step " + after.ToString() + " while others compute step " +
                           std::to_string(hang.place.step) + ": all ranks must run the same steps";
  for (Rank rank : left) {
    FaultReport report{.kind = FaultKind::kException, .text = text, .step = after.Next()};
    NoteFailure(rank, report);
    RecordFault(rank, FaultKind::kException, text, now_ - hang.still);
  }
  EnterLock(text);
  return true;
}

void ControllerCore::NoteCrash(Rank rank, const std::string& cause) {
  Member& member = At(rank);
  // By what it was seen to do: its word that it has resumed may be lost with it.
  const bool computing =
      (phase_ == Phase::kRunning || phase_ == Phase::kConfirm) && member.begun > resume_step_ && !member.finished;
  if (!computing) return;
  member.crashes = member.begun == member.crash_step ? member.crashes + 1 : 1;
  member.crash_step = member.begun;
  if (member.crashes < kTimesAtOneStep) return;
  hopeless_ = "rank " + rank.ToString() + " died " + std::to_string(member.crashes) + " times at step " +
              member.begun.ToString() + " (last: " + cause +
              "): this is no fault of the hardware, the program or its data is";
}

void ControllerCore::NoteFailure(Rank rank, const FaultReport& report) { failures_.emplace(rank, report); }

// What comes back whenever the step is run again is no fault of the hardware. Beside a lost process an exception may be
// no more than its echo: then nothing is counted.
void ControllerCore::CountFailures() {
  const std::map<Rank, FaultReport> failures = std::exchange(failures_, {});
  if (!hopeless_.empty() || !AllReady() || !Ranks([](const Member& m) { return m.fresh; }).empty()) return;
  for (const auto& [rank, report] : failures) {
    Member& member = At(rank);
    member.failures = report.step == member.failure_step ? member.failures + 1 : 1;
    member.failure_step = report.step;
    failures_at_step_ = report.step == failed_step_ ? failures_at_step_ + 1 : 1;
    failed_step_ = report.step;
    const bool one = member.failures >= kTimesAtOneStep;
    if (!one && failures_at_step_ < kFailuresAtOneStep) continue;
    hopeless_ = one ? "rank " + rank.ToString() + " failed " + Times(member.failures)
                    : "ranks failed " + Times(failures_at_step_);
    hopeless_ += " at step " + report.step.ToString() + " (last: " + (one ? "" : "rank " + rank.ToString() + ": ") +
                 report.text + "): this is no fault of the hardware, the program or its data is";
    return;
  }
}

// Memory that is found damaged at one step again and again is not mended by new bytes: true, a new process may.
bool ControllerCore::NoteDamage(Rank rank, const FaultReport& report) {
  Member& member = At(rank);
  member.damages = report.step == member.damage_step ? member.damages + 1 : 1;
  member.damage_step = report.step;
  if (member.damages < kTimesAtOneStep) return false;
  member.damages = 0;
  return true;
}

// A collective that fails at one step again and again, with nobody to blame. Of an incident the first attempt counts: while
// a network is down, many fail within a second.
bool ControllerCore::IsRetriedInVain() {
  if (incident_->signal != FaultKind::kCommError || !choice_.step || attempt_ != 1) return false;
  retries_at_step_ = *choice_.step == retry_step_ ? retries_at_step_ + 1 : 1;
  retry_step_ = *choice_.step;
  if (retries_at_step_ < kFailuresAtOneStep) return false;
  hopeless_ = "a collective failed " + Times(retries_at_step_) + " at step " + choice_.step->Next().ToString() +
              " with no rank to blame (last: " + incident_->cause + ")";
  return true;
}

}  // namespace kintsugi::core
