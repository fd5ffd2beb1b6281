// The checkers: what every run must keep, whatever struck it.
#include <algorithm>

#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

// Promises 1, 2 and 3: at `step` a rank holds exactly what an undisturbed run holds there.
void Cluster::CheckState(const ProcessPtr& p, uint64_t step, const std::string& when) {
  const RankState& expected = reference_.At(step, p->rank);
  if (p->state.tensors != expected.tensors)
    Violation("rank " + p->rank.ToString() + ", " + when + ": its state is not that of step " + std::to_string(step));
  uint64_t object = 0;
  if (!ObjectOf(p, p->rank, step, &object) || object != expected.object)
    Violation("rank " + p->rank.ToString() + ", " + when + ": its object is not that of step " + std::to_string(step));
}

void Cluster::CheckTransition(const Transition& transition) {
  if (transition.from != phase_) Violation("a transition from where the incident is not");
  if (!IsTransition(transition.from, transition.to))
    Violation("no transition " + std::string(PhaseName(transition.from)) + " -> " + std::string(PhaseName(transition.to)));
  phase_ = transition.to;
  if (transition.to == Phase::kConfirm) before_confirm_ = core_.generation();
  if (transition.to == Phase::kLock && lock_generation_.value() > 0 && transition.generation < lock_generation_)
    Violation("LOCK of an older generation");
  if (transition.from == Phase::kLock && transition.to != Phase::kEnded) {
    if (transition.generation < lock_generation_ || (transition.generation == lock_generation_ && transition.to != Phase::kLock))
      Violation("an attempt without a generation of its own");
    if (transition.to != Phase::kLock) lock_generation_ = transition.generation;
  }
  if (transition.from == Phase::kConfirm && transition.to == Phase::kRunning) {
    ++outcome_.healed;
    if (transition.generation != before_confirm_) Violation("a healed gap cost a generation");
  }
  if (transition.to == Phase::kRunning) ever_running_ = true;
  if (transition.from == Phase::kEnded) Violation("a transition after the end");
}

void Cluster::CheckSpawn(Rank rank, Incarnation incarnation) {
  if (++spawns_[rank] > 1 + plan_.policy.max_respawns) Violation("rank " + rank.ToString() + " is started beyond its budget");
  if (ended_) Violation("a process is started after the end");
  const ProcessPtr before = processes_[rank];
  if (!before) return;
  if (incarnation <= before->incarnation) Violation("incarnations do not grow");
  if (before->alive && !given_up_.count({rank, before->incarnation}))
    Violation("rank " + rank.ToString() + " is started while it lives");
}

void Cluster::CheckSend(const Send& send) {
  const auto* reply = std::get_if<JoinReply>(&send.message);
  if (reply && !reply->accepted) return;
  const auto* order = std::get_if<PhaseOrder>(&send.message);
  if (order && plan_.gate != GateKind::kOff)
    for (const RepairMove& move : order->moves)
      if (!losses_.count(move.destination.value()))
        Violation("rank " + move.destination.ToString() + ", which nothing struck, needs a repair");
  if (given_up_.count({send.header.rank, send.header.incarnation}))
    Violation("incarnation " + send.header.incarnation.ToString() + " of rank " + send.header.rank.ToString() +
              " is spoken to after its death");
}

// Nobody pays for another rank's fault.
void Cluster::CheckKill(const KillProcess& kill) {
  if (core_.phase() != Phase::kEnded && !losses_.count(kill.rank.value()) && kill.incarnation == Incarnation(1))
    Violation("rank " + kill.rank.ToString() + ", which nothing struck, is given up: " + kill.reason);
}

void Cluster::NoteLoss(int rank, int times) { losses_[rank] += times; }

// Promise 7, and the end's own: success is complete, a resumable end has a checkpoint, and nothing is given up that
// could have been repaired.
void Cluster::CheckEnd() {
  if (!ended_) return Violation("no event is left and the run has not ended");
  outcome_.exit_code = ended_->exit_code;
  outcome_.text = ended_->text;
  const std::string end = "exit " + std::to_string(ended_->exit_code) + " (" + ended_->text + ")";
  const bool shard_at_risk = std::any_of(replicas_.shards().begin(), replicas_.shards().end(), [&](const auto& shard) {
    return std::all_of(shard.holders.begin(), shard.holders.end(), [&](Rank r) { return losses_.count(r.value()) > 0; });
  });
  const bool budget_at_risk = std::any_of(losses_.begin(), losses_.end(), [&](const auto& loss) {
    return loss.second > plan_.policy.max_respawns;
  });
  const bool gateless = plan_.gate == GateKind::kOff && !losses_.empty();
  const bool can_save = !plan_.policy.save_directory.empty();
  for (const ProcessPtr& p : all_processes_)
    if (p->alive && !p->frozen) Violation(end + " leaves rank " + p->rank.ToString() + " behind");
  switch (ended_->exit_code) {
    case kExitSuccess:
      for (const auto& [rank, p] : processes_) 
        if (!p->damaged) CheckState(p, plan_.steps, "at the end");
      return;
    case kExitResumable:
      if (visible_.empty()) return Violation(end + " without a checkpoint");
      if (!stop_asked_ && !shard_at_risk && !budget_at_risk && !gateless) Violation(end + " although a repair was possible");
      return;
    case kExitStartup:
      if (!start_disturbed_ || ever_running_) Violation(end + " without a fault at the start");
      return;
    default:
      if (stop_asked_ && (!can_save || !ever_running_)) return;
      if (checkpoint_known_) return Violation(end + " although there is a checkpoint");
      if (can_save && !shard_at_risk && !gateless) return Violation(end + " although every shard was held");
      if (!shard_at_risk && !budget_at_risk && !gateless) Violation(end + " although a repair was possible");
  }
}

}  // namespace kintsugi::sim
