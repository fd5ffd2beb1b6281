#include "runtime/core/save_points.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::core {

SavePoints::SavePoints(Board& board, HangWatch& hangs)
    : board_(board), hangs_(hangs), rounds_(board.policy.world_size) {}

void SavePoints::Arm() {
  KINTSUGI_CHECK(board_.InTraining(), "a pause is asked for while ranks are not in their loops");
  board_.SetSave(SaveState::kArming);
  const Step at = rounds_.Arm(board_.members.newest_begun(), board_.members.crew());
  for (Rank rank : board_.members.ranks()) {
    board_.SendTo(rank, PauseAt{at});
    const auto parked_at = board_.At(rank).save_point;
    if (parked_at && *parked_at < at && !IsPeriodic(*parked_at)) Leave(rank);
  }
}

bool SavePoints::OnAck(Rank rank, const PauseAck& ack) {
  if (board_.save() != SaveState::kArming) return false;
  const PauseRounds::Answer answer = rounds_.Take(rank, ack.begun);
  if (answer == PauseRounds::Answer::kOvertaken) Arm();
  if (answer != PauseRounds::Answer::kStored) return false;
  board_.SetSave(SaveState::kGathering);
  return true;
}

void SavePoints::TellAgain(Rank rank) {
  if (board_.save() == SaveState::kArming && rounds_.Awaits(rank)) board_.SendTo(rank, PauseAt{rounds_.at()});
}

bool SavePoints::OnParked(Rank rank, Step step) {
  Member& member = board_.At(rank);
  member.save_point = step;
  hangs_.OnIdle(rank);
  // Said again after a lost connection, or a pause that has moved on meanwhile.
  const bool passing = InLoops(board_.save()) && (board_.save() == SaveState::kNone || step < rounds_.at());
  if (member.left_save_point != step && (!passing || IsPeriodic(step))) return true;
  Leave(rank);
  return false;
}

std::optional<Step> SavePoints::AllAt() const {
  std::optional<Step> step;
  for (const Member& member : board_.members) {
    const auto at = member.save_point ? member.save_point : member.finished;
    if (!at || (step && *step != *at)) return {};
    step = at;
  }
  return step;
}

std::optional<Step> SavePoints::ParkedAt() const {
  const auto parked = std::find_if(board_.members.begin(), board_.members.end(),
                                   [](const Member& member) { return member.save_point.has_value(); });
  return parked == board_.members.end() ? std::nullopt : parked->save_point;
}

void SavePoints::LeaveAll() {
  for (Rank rank : board_.members.ranks())
    if (board_.At(rank).save_point) Leave(rank);
  hangs_.StartSlow();
}

void SavePoints::Leave(Rank rank) {
  Member& member = board_.At(rank);
  KINTSUGI_CHECK(member.save_point.has_value(), "rank " + rank.ToString() + " leaves a save point it is not at");
  member.left_save_point = member.save_point;
  member.save_point.reset();
  hangs_.OnActive(rank);
  board_.SendTo(rank, ContinueOrder{});
}

}  // namespace kintsugi::core
