#include "runtime/core/processes.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

// While some of many lost ranks still come back, the others are waited for, for at most so many confirmation windows.
constexpr int kReturnWindowsMax = 4;

}  // namespace

Processes::Processes(Board& board, ControlGate& gate, SnapshotRounds& snapshots, const Repeats& repeats)
    : board_(board),
      gate_(gate),
      snapshots_(snapshots),
      repeats_(repeats),
      detector_(board.policy.silence),
      spares_(board.policy.world_size) {}

void Processes::StartNext(Rank rank) {
  Member& member = board_.At(rank);
  KINTSUGI_CHECK(member.life != Life::kReady, "a second process of rank " + rank.ToString() + " is started");
  // Until it hears of this one, a leader before it may give the numbers that follow.
  if (board_.policy.takes_over && board_.policy.needs_consent)
    member.incarnation = std::max(member.incarnation, FirstOfTerm());
  member.incarnation = member.incarnation.Next();
  KINTSUGI_CHECK(!member.unconfirmed || *member.unconfirmed < member.incarnation,
                 "rank " + rank.ToString() + " gets the life that was given up");
  board_.members.SetLife(member, Life::kStarting);
  member.from_spare = spares_.Take(rank);
  board_.Act(SpawnProcess{rank, member.incarnation});
}

void Processes::Respawn(Rank rank) {
  Member& member = board_.At(rank);
  if (!board_.members.kept().Has(rank)) return;  // it was on its way into the run: that goes on as it was
  if (member.life != Life::kDead || member.respawns >= board_.policy.max_respawns || board_.course.leaving ||
      !repeats_.hopeless().empty() || !board_.course.given_up.empty())
    return;
  ++member.respawns;
  if (board_.policy.can_spawn) return StartNext(rank);
  board_.members.SetLife(member, Life::kAbsent);
}

void Processes::StartNewcomer(Rank rank) {
  Member& member = board_.At(rank);
  KINTSUGI_CHECK(!board_.members.InRun(rank), "rank " + rank.ToString() + " is to come, and is there");
  if (member.life == Life::kAbsent) MarkDead(rank);
  KINTSUGI_CHECK(member.life == Life::kDead, "rank " + rank.ToString() + " is to come, and has a process");
  if (board_.policy.takes_over) member.incarnation = std::max(member.incarnation, FirstOfTerm());
  // What was left of the life before it is of a step that is long over, or of another crew.
  member.trust.Leave(member.incarnation);
  member.respawns = 0;
  member.absent = false;
  member.start_failure.clear();
  member.trust.Tear();
  member.trust.Find(true);
  StartNext(rank);
}

void Processes::MarkDead(Rank rank) {
  Member& member = board_.At(rank);
  KINTSUGI_CHECK(member.life != Life::kDead, "a life of rank " + rank.ToString() + " is given up twice");
  if (member.life != Life::kAbsent) {
    if (!member.unconfirmed) member.given_up_at = board_.now();
    member.unconfirmed = member.incarnation;
  }
  member.trust.Lose(member.incarnation, board_.course.ever_ran);
  board_.members.SetLife(member, Life::kDead);
  board_.members.SetClosed(member);
  board_.members.SetWaiting(member, false);
  member.parked = false;
  member.from_spare = false;
  member.handler_failures = 0;
  member.save_failed = false;
  member.finished.reset();
  member.save_point.reset();
  gate_.Forget(rank);
  detector_.Forget(rank);
  snapshots_.Forget(rank);
}

void Processes::Kill(Rank rank, const std::string& reason) {
  const Incarnation incarnation = board_.At(rank).incarnation;
  const bool exists = board_.At(rank).life == Life::kReady || board_.At(rank).life == Life::kStarting;
  MarkDead(rank);
  if (exists) board_.Act(KillProcess{rank, incarnation, reason});
}

void Processes::Dismiss(Rank rank) {
  const Member& member = board_.At(rank);
  KINTSUGI_CHECK(!member.takes_part, "rank " + rank.ToString() + " is sent away, and takes part");
  const std::string why = "rank " + rank.ToString() + " leaves: the run goes on with " +
                          std::to_string(board_.members.crew().size()) + " ranks";
  if (member.life == Life::kReady) {
    board_.SendTo(rank, EndOrder{kExitSuccess, why});
    MarkDead(rank);
  } else if (member.life != Life::kDead) {
    // Where it never began, it is the one before it that may live.
    const std::optional<Incarnation> before = member.unconfirmed;
    Kill(rank, why);
    if (before) board_.At(rank).unconfirmed = before;
  }
}

void Processes::SeeJoin(Rank rank) {
  board_.members.SetConnected(board_.At(rank), board_.now());
  detector_.Watch(rank, board_.now());
}

void Processes::SeeClosed(Rank rank) {
  Member& member = board_.At(rank);
  board_.members.SetClosed(member);
  member.closed_at = board_.now();
  // Its signs of life came over this connection: from here on the confirmation window decides, not the silence limit
  // that began with the last of them.
  if (!member.watched_by_launcher) detector_.Forget(rank);
}

std::vector<Rank> Processes::Silent() {
  std::vector<Rank> silent;
  for (Rank rank : detector_.OnTick(board_.now())) {
    detector_.Forget(rank);
    if (board_.At(rank).life == Life::kReady || board_.At(rank).life == Life::kStarting) silent.push_back(rank);
  }
  return silent;
}

std::vector<Rank> Processes::Lost() const {
  if (board_.members.lost() == 0) return {};
  std::vector<Rank> lost;
  for (Rank rank : board_.members.Where([](const Member& m) { return m.lost(); }))
    if (IsLost(board_.At(rank))) lost.push_back(rank);
  return lost;
}

bool Processes::IsLost(const Member& member) const {
  const Duration window = board_.policy.ConfirmWindow();
  return board_.now() - std::max(member.closed_at, board_.members.returned_at()) >= window ||
         board_.now() - member.closed_at >= kReturnWindowsMax * window;
}

TimePoint Processes::ReturnsUntil() const {
  const Duration window = board_.policy.ConfirmWindow();
  return std::min(board_.members.returned_at() + window, board_.phase_began() + kReturnWindowsMax * window);
}

void Processes::TellHeld(const StateHeld& told) {
  if (!board_.members.Has(told.rank)) return;
  board_.At(told.rank).trust.Hold(told.held);
}

}  // namespace kintsugi::core
