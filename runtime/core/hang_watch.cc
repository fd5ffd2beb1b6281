#include "runtime/core/hang_watch.h"

#include <string>
#include <vector>

#include "runtime/base/check.h"

namespace kintsugi::core {

HangWatch::HangWatch(Board& board, const Processes& processes, Faults& faults, Repeats& repeats)
    : board_(board),
      faults_(faults),
      repeats_(repeats),
      detector_(board.policy.Hangs(), board.policy.world_size),
      looks_(board.policy.Looks(), board.policy.world_size),
      rounds_(board, processes),
      slow_(board.policy.world_size) {}

void HangWatch::Start() {
  KINTSUGI_CHECK(board_.phase() == Phase::kRunning, "hangs are looked for outside of RUNNING");
  detector_.Start(board_.now(), board_.course.resume_step);
  looks_.Start(board_.now(), board_.course.resume_step);
  slow_.Start(board_.members.crew().size());
  for (size_t r = 0; r < board_.members.seats(); ++r)
    if (const Member& member = board_.members[r]; member.finished || member.save_point || !member.takes_part)
      OnIdle(Rank(static_cast<int32_t>(r)));
}

void HangWatch::OnPlace(Rank rank, const Progress& place) {
  detector_.OnPlace(rank, place, board_.now());
  looks_.OnPlace(rank, place, board_.now());
  if (board_.phase() != Phase::kRunning || !slow_.OnPlace(rank, place, board_.now())) return;
  const auto took = step_time();
  if (!took) return;
  for (const SlowRanks::News& news : slow_.Take(*took)) board_.Note(news.rank, ToString(news, *took));
}

void HangWatch::OnBroken(std::optional<Rank> gone) {
  if (!board_.InTraining() || rounds_.open()) return;
  asked_step_ = 0;
  rounds_.Ask(Duration(), false, gone);
}

// Asked again where it has lasted twice as long.
void HangWatch::Look() {
  const std::optional<Hang> hang = looks_.OnTick(board_.now());
  if (!hang || rounds_.open()) return;
  if (asked_step_ == hang->place.step && asked_still_ && hang->still >= *asked_still_ && hang->still < 2 * *asked_still_) return;
  asked_step_ = hang->place.step;
  asked_still_ = hang->still;
  rounds_.Ask(hang->still, true);
}

void HangWatch::TakeAnswers() {
  std::optional<Blame> blame = rounds_.Take();
  if (!blame || blame->kind == BlameKind::kNone) return;
  const bool told = explained_ && explained_->step == asked_step_ && explained_->blame.kind == blame->kind &&
                    explained_->blame.ranks == blame->ranks;
  explained_ = {std::move(*blame), asked_step_, board_.now()};
  if (!told) board_.Act(HangExplained{explained_->blame});
}

void HangWatch::Check() {
  TakeAnswers();
  if (board_.phase() != Phase::kRunning || board_.members.unresumed() > 0 || !InLoops(board_.save())) return;
  Look();
  std::optional<Hang> hang = detector_.OnTick(board_.now());
  if (!hang) return;
  KINTSUGI_CHECK(!hang->ranks.empty(), "a step does not move, and nobody stands in it");
  repeats_.StandsStill(Step(hang->place.step));
  park_limit_ = detector_.LimitAt(hang->place.step);
  if (BlameWhoLeft(*hang)) return;
  if (!hang->short_of.empty()) return BlameWhoIsShort(*hang);
  if (BlameWhoIsExplained(&*hang)) return;
  detector_.Grow(hang->place.step);
  if (!hang->all) return BlameRanks(*hang);
  // Nobody is to blame: a rank that does not come out of STOP will be.
  const std::string text = hang->ToString();
  repeats_.StandsStillTogether(text);
  if (board_.incident.open()) board_.CloseIncident();
  faults_.OpenBlamingNobody(FaultKind::kHang, text, board_.now() - hang->still);
  board_.SetPhase(Phase::kConfirm, text);
  faults_.Lock(text);
}

void HangWatch::BlameRanks(const Hang& hang) {
  const std::string text = hang.ToString();
  const TimePoint since = board_.now() - hang.still;
  const Step step(hang.place.step);
  std::vector<Rank> asked;
  for (Rank rank : hang.ranks)
    if (repeats_.WasAsked(rank, step, hang.certain)) asked.push_back(rank);
  if (!asked.empty()) return faults_.GiveUp(asked, FaultKind::kHang, since, text + ", not for the first time");
  for (Rank rank : hang.ranks) faults_.Record(rank, FaultKind::kHang, text, since);
  faults_.Lock(text);
}

// Ranks that wait for one that has left its loop hang, and none of them is to blame: all run the same steps.
bool HangWatch::BlameWhoLeft(const Hang& hang) {
  std::vector<Rank> left;
  for (Rank rank : board_.members.Where([](const Member& m) { return m.finished.has_value(); }))
    if (*board_.At(rank).finished < Step(hang.place.step)) left.push_back(rank);
  if (left.empty()) return false;
  const Step after = *board_.At(left.front()).finished;
  const std::string text = "its loop ended after step " + after.ToString() + " while others compute step " +
                           std::to_string(hang.place.step) + ": all ranks must run the same steps";
  for (Rank rank : left) {
    repeats_.Failed(rank, {.kind = FaultKind::kException, .text = text, .step = after.Next()});
    faults_.Record(rank, FaultKind::kException, text, board_.now() - hang.still);
  }
  faults_.Lock(text);
  return true;
}

// What was asked while all stood as they do now. True: that rank has been met, as what it is: one that is late, or a
// program that goes another way on it.
bool HangWatch::BlameWhoIsExplained(Hang* hang) {
  if (!explained_ || explained_->at < board_.now() - hang->still) return false;
  const Blame& blame = explained_->blame;
  std::vector<Rank> ranks = blame.ranks;
  std::erase_if(ranks, [this](Rank rank) { return board_.At(rank).life != Life::kReady || board_.At(rank).finished; });
  if (ranks.empty()) return false;
  if (blame.kind != BlameKind::kMissing && blame.kind != BlameKind::kStopped && blame.kind != BlameKind::kNoAnswer) {
    BlameProgram(ranks, blame.text, *hang);
    return true;
  }
  detector_.Grow(hang->place.step);
  hang->certain = hang->certain && hang->ranks == ranks;
  hang->ranks = std::move(ranks);
  hang->all = false;
  hang->why = blame.text;
  BlameRanks(*hang);
  return true;
}

void HangWatch::BlameProgram(const std::vector<Rank>& ranks, const std::string& text, const Hang& hang) {
  for (Rank rank : ranks) {
    repeats_.Failed(rank, {.kind = FaultKind::kException, .text = text, .step = Step(hang.place.step)});
    faults_.Record(rank, FaultKind::kException, text, board_.now() - hang.still);
  }
  faults_.Lock(text);
}

// They left a batch out, say: the others wait in a collective that these will never enter.
void HangWatch::BlameWhoIsShort(const Hang& hang) {
  std::vector<Rank> ranks;
  for (const Hang::Place& place : hang.short_of) ranks.push_back(place.rank);
  BlameProgram(ranks, hang.ShortOfText(), hang);
}

}  // namespace kintsugi::core
