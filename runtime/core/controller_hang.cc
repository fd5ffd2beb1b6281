// Faults that only their repetition or their duration shows: a step that does not move, and a rank that dies at the
// same step again and again; and ranks that are slow, which are no fault yet.
//
// A hang is met as any fault is: all ranks are stopped. Whoever comes out of its step by that goes on with the others
// (a collective that waited for ever is retried); whoever does not is killed at the end of STOP and replaced. A rank
// that hangs at the same step once more is not asked again. What fails at one step over and over is no fault of the
// hardware: the run saves what it holds and ends, since repairing it would go on for ever.
#include <utility>

#include "runtime/core/controller_core.h"

namespace kintsugi::core {
namespace {

// So often may one rank die, or all hang, at one step.
constexpr int kTimesAtOneStep = 3;

}  // namespace

void ControllerCore::WatchForHangs() {
  hangs_.Start(now_);
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
  if (!hang->all) {
    std::vector<Rank> asked;
    for (Rank rank : hang->ranks)
      if (std::exchange(At(rank).hang_step, step) == step) asked.push_back(rank);
    if (!asked.empty()) return GiveUp(asked, FaultKind::kHang, since, text + ", not for the first time");
  }
  if (hang->all) {
    // Nobody is to blame: who does not come out of STOP will be.
    if (hangs_at_step_ >= kTimesAtOneStep)
      hopeless_ = text + ", " + std::to_string(hangs_at_step_) + " times: this is a deadlock in the program";
    if (incident_) CloseIncident();
    OpenIncident(Rank(0), FaultKind::kHang, text, since);
    incident_->ranks.clear();
    SetPhase(Phase::kConfirm, text);
  } else {
    for (Rank rank : hang->ranks) RecordFault(rank, FaultKind::kHang, text, since);
  }
  EnterLock(text);
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

}  // namespace kintsugi::core
