#include "runtime/core/rescue.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

// This part of a grace period is for writing.
constexpr int kToWrite = 4;

}  // namespace

void Rescue::Enter() {
  board_.SetPhase(Phase::kDump, "survivors write a checkpoint");
  saves_.EndAfterNext();
  const IncidentFacts facts = survey_.Take();
  rescued_ = PlanRescue(facts, board_.replicas());
  rescued_.empty() ? Compare() : Begin(facts);
}

bool Rescue::Rescues(Rank rank) const { return std::find(rescued_.begin(), rescued_.end(), rank) != rescued_.end(); }

void Rescue::Begin(const IncidentFacts& facts) {
  board_.SetSave(SaveState::kRescuing);
  for (const RepairMove& move : PlanMoves(facts, board_.replicas()))
    if (Rescues(move.destination)) board_.plan.moves.push_back(move);
  // Of a stop's grace all that is left, less the time to write: a process may take long to load its program.
  TimePoint until = board_.now() + board_.policy.join_timeout;
  if (board_.course.leaving) until = std::min(until, board_.course.leave_by - board_.policy.grace / kToWrite);
  board_.SetSaveDeadline(until);
  for (Rank rank : rescued_) {
    Member& member = board_.At(rank);
    KINTSUGI_CHECK(board_.plan.Adopts(rank), "rank " + rank.ToString() + " is rescued, and there is nothing to adopt");
    board_.Note(rank, "its launcher alone holds its state: a process is started to save it");
    if (member.life != Life::kDead) continue;  // one is on its way
    ++member.rescues;
    processes_.StartNext(rank);
  }
  OnReady();
}

void Rescue::OnReady() {
  if (board_.save() != SaveState::kRescuing || !board_.NobodyWaits() || !Late().empty()) return;
  KINTSUGI_CHECK(!rescued_.empty(), "nobody is to be rescued, and that is waited for");
  const Duration limit = board_.policy.HandlerLimit();
  board_.SetSaveDeadline(board_.now() + limit + board_.policy.AnswerSlack());
  for (Rank rank : rescued_) {
    board_.At(rank).trust.Adopt();
    board_.Ask(rank, PhaseOrder{.phase = Phase::kRepair,
                                .step = *board_.plan.choice.step,
                                .rung = Rung::kAdopt,
                                .limit = limit,
                                .partners = board_.replicas().Partners(rank),
                                .moves = board_.plan.moves});
  }
}

std::vector<Rank> Rescue::Late() const {
  std::vector<Rank> late;
  for (Rank rank : rescued_)
    if (const Member& member = board_.At(rank); member.life != Life::kReady || member.waiting) late.push_back(rank);
  return late;
}

void Rescue::OnAdopted(Rank rank, const PhaseDone& done) {
  if (!board_.At(rank).waiting || done.phase != Phase::kRepair) return;
  board_.Heard(rank, Phase::kRepair);
  if (done.code != StatusCode::kOk) {
    board_.At(rank).trust.DoubtHeld();
    return faults_.Fault(rank, FaultKind::kHandlerFailed, done.text, board_.now());
  }
  board_.At(rank).objects_ahead = done.objects_ahead;
  if (board_.NobodyWaits()) Compare();
}

// Reading the state once more takes time, which is dear here: only where there is something to compare it with.
void Rescue::Compare() {
  const std::vector<Copy> copies = comparison_.Copies();
  const auto& shards = board_.replicas().shards();
  const bool comparable = std::any_of(shards.begin(), shards.end(), [&](const ReplicaMap::Shard& shard) {
    return std::count_if(shard.holders.begin(), shard.holders.end(),
                         [&](Rank holder) { return copies[static_cast<size_t>(holder.value())] != Copy::kAbsent; }) > 1;
  });
  comparison_.HasRecord() || comparable ? comparison_.Ask(SaveState::kComparing) : Write();
}

void Rescue::OnDigests(Rank rank, const PhaseDone& done) {
  if (comparison_.OnAnswer(rank, done) && comparison_.Agree()) Write();
}

void Rescue::Write() {
  IncidentFacts facts = survey_.Take();
  for (Rank rank : rescued_) {
    KINTSUGI_CHECK(board_.At(rank).trust.adopted() && board_.At(rank).life == Life::kReady,
                   "rank " + rank.ToString() + " is to write what it has not adopted");
    facts.At(rank).condition = Condition::kGood;
  }
  saves_.Write(*board_.plan.choice.step, facts);
}

}  // namespace kintsugi::core
