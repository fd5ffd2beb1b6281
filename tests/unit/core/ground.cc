#include "tests/unit/core/ground.h"

#include "runtime/base/check.h"

namespace kintsugi::core {

using namespace std::chrono_literals;

Policy Ground::FourRanks() {
  Policy policy;
  policy.world_size = 4;
  policy.save_directory = "/saves";
  return policy;
}

Ground::Ground(Policy policy) : Machines(std::move(policy), {1, 1}) {
  faults.SetNext(next);
  board.SetNow(TimePoint(1000s));
}

void Ground::Gather() {
  board.BeginIn(Phase::kAdmit);
  board.RaiseGeneration(Generation(1));
  Ready ready;
  GroupClaim claim{{}, 2};
  for (int r = 0; r < board.policy.world_size; ++r) claim.ranks.push_back(Rank(r));
  ready.layouts[0] = claim;
  for (int r = 0; r < board.policy.world_size; ++r) {
    member(r).incarnation = Incarnation(1);
    board.members.SetLife(member(r), Life::kReady);
    board.members.SetConnected(member(r), board.now());
    board.registered.Take(member(r), ready);
  }
}

void Ground::Train(uint64_t step) {
  Gather();
  const Status mapped = board.registered.Map(board.members, false);
  KINTSUGI_CHECK(mapped.ok(), mapped.message());
  board.course.ever_ran = true;
  board.course.resume_step = Step(step);
  board.plan.choice = {Step(step), StepReason::kAbandoned};
  for (Member& each : board.members) each.begun = Step(step);
  for (Phase phase : {Phase::kRebuild, Phase::kRepair, Phase::kVerify, Phase::kRollback, Phase::kRunning})
    board.SetPhase(phase, "");
  Take();
}

void Ground::OpenIncident(FaultKind kind) {
  faults.Open(Rank(1), kind, "it broke", board.now());
  board.incident.SetEvidence(Evidence::kProven);
}

void Ground::GoTo(Phase phase, uint64_t step) {
  OpenIncident();
  board.plan.choice = {Step(step), StepReason::kAbandoned};
  for (Phase through : {Phase::kConfirm, Phase::kLock, Phase::kStop, Phase::kClean, Phase::kRebuild, Phase::kRepair,
                        Phase::kVerify, Phase::kRollback}) {
    if (through > phase || (phase == Phase::kDump && through > Phase::kStop)) break;
    board.SetPhase(through, "");
    if (through != Phase::kLock) continue;
    board.RaiseGeneration(board.generation().Next());
    board.incident.BeginAttempt("", board.generation());
  }
  if (phase == Phase::kAdmit) board.SetPhase(phase, "");
  for (Member& each : board.members) each.parked = phase >= Phase::kStop;
  Take();
}

}  // namespace kintsugi::core
