// The dying gasp, before anything is written: what only launchers hold is adopted by processes that are started for
// nothing else, and the replicas that are left are compared, so that nothing is saved as good that is known to differ.
//
// A rescuer joins like any replacement and goes no further: it rebuilds no group and trains nothing. To the next
// attempt, should this one fail, it is a lost rank with a process, and its launcher holds its memory still.
#include <algorithm>

#include "runtime/core/controller_core.h"

namespace kintsugi::core {

void ControllerCore::EnterDump() {
  SetPhase(Phase::kDump, "survivors write a checkpoint");
  end_after_save_ = true;
  const IncidentSnapshot snapshot = Snapshot();
  rescued_ = PlanRescue(snapshot, replicas_);
  rescued_.empty() ? CompareGasp() : BeginRescue(snapshot);
}

bool ControllerCore::IsRescued(Rank rank) const {
  return std::find(rescued_.begin(), rescued_.end(), rank) != rescued_.end();
}

void ControllerCore::BeginRescue(const IncidentSnapshot& snapshot) {
  SetSave(SaveState::kRescuing);
  for (const RepairMove& move : PlanMoves(snapshot, replicas_))
    if (IsRescued(move.destination)) moves_.push_back(move);
  // Of a stop's grace most is for writing.
  save_deadline_ = now_ + (stop_requested_ ? std::min(policy_.join_timeout, policy_.grace / 4) : policy_.join_timeout);
  for (Rank rank : rescued_) {
    Member& member = At(rank);
    out_.push_back(Notice{rank, "its launcher alone holds its state: a process is started to save it"});
    if (member.life != Life::kDead) continue;  // one is on its way
    ++member.rescues;
    member.incarnation = member.incarnation.Next();
    members_.SetLife(member, Life::kStarting);
    member.from_spare = spares_.Take(rank);
    out_.push_back(SpawnProcess{rank, member.incarnation});
  }
  MaybeRescued();
}

// All that were to come are there.
void ControllerCore::MaybeRescued() {
  if (save_ != SaveState::kRescuing || !NobodyWaits() || !LateRescues().empty()) return;
  save_deadline_ = now_ + policy_.HandlerLimit() + policy_.AnswerSlack();
  for (Rank rank : rescued_) {
    At(rank).adopted = true;
    Ask(rank, PhaseOrder{.phase = Phase::kRepair,
                         .step = *choice_.step,
                         .rung = Rung::kAdopt,
                         .limit = policy_.HandlerLimit(),
                         .partners = replicas_.Partners(rank),
                         .moves = moves_});
  }
}

std::vector<Rank> ControllerCore::LateRescues() const {
  std::vector<Rank> late;
  for (Rank rank : rescued_)
    if (const Member& member = members_.At(rank); member.life != Life::kReady || member.waiting) late.push_back(rank);
  return late;
}

void ControllerCore::OnRescued(Rank rank, const PhaseDone& done) {
  if (!At(rank).waiting || done.phase != Phase::kRepair) return;
  Heard(rank, Phase::kRepair);
  if (done.code != StatusCode::kOk) {
    DoubtHeld(rank);
    return Fault(rank, FaultKind::kHandlerFailed, done.text, now_);
  }
  if (NobodyWaits()) CompareGasp();
}

// Reading the state once more takes time, which is dear here: only where there is something to compare it with.
void ControllerCore::CompareGasp() {
  const std::vector<Copy> copies = Copies();
  const bool recorded =
      policy_.verify_every > 0 && (agreed_step_ == *choice_.step || snapshots_.table().newest() == *choice_.step);
  const auto& shards = replicas_.shards();
  const bool comparable = std::any_of(shards.begin(), shards.end(), [&](const ReplicaMap::Shard& shard) {
    return std::count_if(shard.holders.begin(), shard.holders.end(),
                         [&](Rank holder) { return copies[static_cast<size_t>(holder.value())] != Copy::kAbsent; }) > 1;
  });
  recorded || comparable ? AskForDigests(SaveState::kComparing) : WriteGasp();
}

// The replicas that are left agree.
void ControllerCore::WriteGasp() {
  IncidentSnapshot snapshot = Snapshot();
  for (Rank rank : rescued_) snapshot.ranks[static_cast<size_t>(rank.value())].condition = Condition::kGood;
  StartWriting(*choice_.step, snapshot);
}

}  // namespace kintsugi::core
