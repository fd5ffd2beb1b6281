#include "runtime/core/board.h"

#include "runtime/base/check.h"
#include "runtime/base/generation_part.h"

namespace kintsugi::core {
namespace {

// Every phase on the way to a step, and what is done at it. The start's REBUILD comes before its step is known to all.
bool NeedsStep(Phase phase) { return phase == Phase::kClean || (phase >= Phase::kRepair && phase <= Phase::kRename); }

}  // namespace

Board::Board(Policy given, Term of)
    : policy(std::move(given)),
      term(of),
      members(policy.world_size),
      incident(policy.incidents_before),
      majority(policy) {
  const Status valid = policy.Validate();
  KINTSUGI_CHECK(valid.ok(), valid.message());
}

Generation Board::NextGeneration() const {
  const Generation next = generation_.Next();
  if (!majority.minority() || PartOf(next) != 0) return next;
  return Generation((term.controller_id << kPartShift) + next.value());
}

std::vector<Rank> Board::LiveRanks() const {
  return members.Where([](const Member& m) { return m.life == Life::kReady; });
}

std::vector<Rank> Board::LiveOfNextCrew() const {
  std::vector<Rank> ranks = LiveRanks();
  std::erase_if(ranks, [this](Rank rank) { return !NextCrew().Has(rank); });
  return ranks;
}

void Board::BeginIn(Phase phase) {
  KINTSUGI_CHECK(transitions_ == 0, "a run begins once");
  phase_ = phase;
  phase_began_ = now_;
}

void Board::SetPhase(Phase to, const std::string& reason) {
  KINTSUGI_CHECK(IsTransition(phase_, to), "no transition " + std::string(PhaseName(phase_)) + " -> " +
                                               std::string(PhaseName(to)) + " (" + reason + ")");
  KINTSUGI_CHECK(!NeedsStep(to) || plan.choice.step,
                 std::string(PhaseName(to)) + " without a step to go to (" + reason + ")");
  incident.NotePhase({phase_, incident.attempt(), generation_, phase_began_, now_});
  Act(Transition{phase_, to, incident.id(), incident.attempt(), generation_, reason});
  // CONFIRM only listens: what the ranks were asked for in RUNNING they still do.
  const bool listening = phase_ == Phase::kRunning || to == Phase::kRunning;
  phase_ = to;
  phase_began_ = now_;
  ++transitions_;
  deadline_ = TimePoint::Max();
  majority.OnPhase(to);
  if (listening) return;
  save_deadline_ = TimePoint::Max();
  members.StopWaiting();
}

void Board::RaiseGeneration(Generation to) {
  KINTSUGI_CHECK(to >= generation_,
                 "generation " + to.ToString() + " is older than " + generation_.ToString() + ", which is under way");
  generation_ = to;
}

void Board::SetSave(SaveState to) {
  KINTSUGI_CHECK(IsTransition(save_, to), "no transition of a save " + std::string(SaveStateName(save_)) + " -> " +
                                              std::string(SaveStateName(to)) + " in " + std::string(PhaseName(phase_)));
  save_ = to;
}

void Board::CloseIncident() {
  incident.NotePhase({phase_, incident.attempt(), generation_, phase_began_, now_});
  Act(IncidentClosed{incident.Close()});
}

void Board::SendTo(Rank rank, ControllerMessage message) {
  const Member& member = At(rank);
  // Nobody speaks to the dead, nor to those who are not there yet.
  if (member.life == Life::kDead || member.life == Life::kAbsent) return;
  Act(Send{{term, generation_, rank, member.incarnation}, std::move(message)});
}

void Board::Ask(Rank rank, ControllerMessage message) {
  Member& member = At(rank);
  KINTSUGI_CHECK(member.life == Life::kReady,
                 "rank " + rank.ToString() + " is asked, and waited for, and is not there");
  members.SetWaiting(member, true);
  member.wait_began = now_;
  auto* const order = std::get_if<PhaseOrder>(&message);
  if (order && incident.open()) {
    order->fault_ranks = incident.Named();
    order->replaced_ranks = plan.replaced;
    if (order->rung == Rung::kResume) order->rung = plan.decision.rung;
  }
  // In any phase: an attempt with another crew may have been given up since the rank was last told.
  if (order) order->crew = NextCrew().Told(), order->registered_in = registered.since();
  if (order && !registered.gone().empty()) {
    order->unregistered = registered.gone().keys();
    registered.gone().TakeFrom(&member.registry);
  }
  member.order = message;
  SendTo(rank, std::move(message));
}

void Board::Heard(Rank rank, Phase phase) {
  Member& member = At(rank);
  members.SetWaiting(member, false);
  incident.NoteRank({rank, phase, incident.attempt(), member.wait_began, now_});
}

void Board::Drop(Rank rank, const std::string& why) {
  ++dropped_;
  if (members.Has(rank) && std::exchange(told_dropped_[rank], why) == why) return;
  Note(rank, "message dropped: " + why);
}

}  // namespace kintsugi::core
