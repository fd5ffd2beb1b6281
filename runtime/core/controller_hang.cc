// Faults that only their duration or their repetition (Repeats) shows: a step that does not move, and a rank that dies or
// fails at the same step again and again; and ranks that are slow, which are no fault yet.
//
// A hang is met as any fault is: all ranks are stopped. Whoever comes out of its step by that goes on with the others
// (a collective that waited for ever is retried); whoever does not is killed at the end of STOP and replaced. A rank
// that hangs at the same step once more is not asked again where all others are in the gate, so that it must be the
// one; elsewhere it may wait for a neighbour that hangs, and is asked twice.
#include "runtime/core/controller_core.h"

namespace kintsugi::core {

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
  if (phase_ != Phase::kRunning || members_.unresumed() > 0 || !InLoops(save_)) return;
  const std::optional<Hang> hang = hangs_.OnTick(now_);
  if (!hang) return;
  const kintsugi::Step step(hang->place.step);
  repeats_.StandsStill(step);
  const std::string text = hang->ToString();
  const TimePoint since = now_ - hang->still;
  if (BlameWhoLeft(*hang)) return;
  if (!hang->all) return BlameHang(*hang);
  // Nobody is to blame: who does not come out of STOP will be.
  repeats_.StandsStillTogether(text);
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
  for (Rank rank : hang.ranks)
    if (repeats_.WasAsked(rank, step, hang.certain)) asked.push_back(rank);
  if (!asked.empty()) return GiveUp(asked, FaultKind::kHang, since, text + ", not for the first time");
  for (Rank rank : hang.ranks) RecordFault(rank, FaultKind::kHang, text, since);
  EnterLock(text);
}

// Ranks that wait for one that has left its loop hang, and none of them is to blame: all run the same steps.
bool ControllerCore::BlameWhoLeft(const Hang& hang) {
  const std::vector<Rank> finished = members_.Where([](const Member& m) { return m.finished.has_value(); });
  std::vector<Rank> left;
  for (Rank rank : finished)
    if (*At(rank).finished < kintsugi::Step(hang.place.step)) left.push_back(rank);
  if (left.empty()) return false;
  const kintsugi::Step after = *At(left.front()).finished;
  const std::string text = "its loop ended after step " + after.ToString() + " while others compute step " +
                           std::to_string(hang.place.step) + ": all ranks must run the same steps";
  for (Rank rank : left) {
    repeats_.Failed(rank, {.kind = FaultKind::kException, .text = text, .step = after.Next()});
    RecordFault(rank, FaultKind::kException, text, now_ - hang.still);
  }
  EnterLock(text);
  return true;
}

void ControllerCore::NoteCrash(Rank rank, const std::string& cause) {
  const Member& member = At(rank);
  // By what it was seen to do: its word that it has resumed may be lost with it.
  const bool computing =
      (phase_ == Phase::kRunning || phase_ == Phase::kConfirm) && member.begun > resume_step_ && !member.finished;
  if (computing) repeats_.Died(rank, member.begun, cause);
}

// Beside a lost process an exception may be no more than its echo: then nothing is counted.
void ControllerCore::CountFailures() {
  repeats_.CountFailures(members_.all_ready() && members_.Where([](const Member& m) { return m.fresh; }).empty());
}

// A collective that fails at one step again and again, with nobody to blame. Of an incident the first attempt counts:
// while a network is down, many fail within a second.
bool ControllerCore::IsRetriedInVain() {
  if (incident_->signal != FaultKind::kCommError || !choice_.step || attempt_ != 1) return false;
  return repeats_.Retried(*choice_.step, incident_->cause);
}

}  // namespace kintsugi::core
