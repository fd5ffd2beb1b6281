#include "runtime/sim/plan.h"

#include <array>

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

GroupClaim Group(std::vector<int> ranks, int replicas) {
  GroupClaim claim;
  claim.replicas = replicas;
  for (int rank : ranks) claim.ranks.push_back(Rank(rank));
  return claim;
}

void Claim(Claims* claims, int layout, const GroupClaim& group) {
  for (Rank rank : group.ranks) (*claims)[rank][layout] = group;
}

void DrawLayout(Random& random, Plan* plan) {
  switch (random.Below(6)) {
    case 0:
      plan->layout_name = "dp2 r2";
      plan->policy.world_size = 2;
      Claim(&plan->claims, 0, Group({0, 1}, 2));
      break;
    case 1:
    case 2:
      plan->layout_name = "dp4 r2";
      plan->policy.world_size = 4;
      Claim(&plan->claims, 0, Group({0, 1, 2, 3}, 2));
      break;
    case 3:
      plan->layout_name = "tp2 x dp2 r2";
      plan->policy.world_size = 4;
      Claim(&plan->claims, 0, Group({0, 2}, 2));
      Claim(&plan->claims, 0, Group({1, 3}, 2));
      break;
    case 4:
      plan->layout_name = "dense dp4 r2 + expert dp2 r2";
      plan->policy.world_size = 4;
      Claim(&plan->claims, 0, Group({0, 1, 2, 3}, 2));
      Claim(&plan->claims, 1, Group({0, 1}, 2));
      Claim(&plan->claims, 1, Group({2, 3}, 2));
      break;
    default:
      plan->layout_name = "dp8 r2";
      plan->policy.world_size = 8;
      Claim(&plan->claims, 0, Group({0, 1, 2, 3, 4, 5, 6, 7}, 2));
      break;
  }
}

PlannedFault DrawFault(Random& random, const Plan& plan, bool first) {
  constexpr std::array kWeighted = {
      FaultType::kKill,     FaultType::kKill,          FaultType::kKill,        FaultType::kExit,
      FaultType::kFreeze,   FaultType::kThrow,         FaultType::kThrow,       FaultType::kThrowInUpdate,
      FaultType::kUceLow,   FaultType::kUceHigh,       FaultType::kCommError,   FaultType::kShortGap,
      FaultType::kShortGap, FaultType::kLongGap,       FaultType::kHandlerFails, FaultType::kHandlerHangs,
      FaultType::kBitFlip,
      FaultType::kSave,     FaultType::kSave,          FaultType::kBadReplacement, FaultType::kStop};
  PlannedFault fault;
  fault.type = kWeighted[random.Below(kWeighted.size())];
  fault.rank = static_cast<int>(random.Below(static_cast<uint64_t>(plan.policy.world_size)));
  fault.count = 1 + static_cast<int>(random.Below(3));
  if (fault.type == FaultType::kHandlerHangs) fault.count = 1 + static_cast<int>(random.Below(4));
  if (fault.type == FaultType::kHandlerFails && random.Chance(0.3)) fault.count = 100;
  const bool needs_trainer = fault.type == FaultType::kThrow || fault.type == FaultType::kThrowInUpdate;
  if (!needs_trainer && !first && random.Chance(0.6)) {
    // Later faults fall into the incident that the first has opened.
    fault.in_phase = static_cast<Phase>(random.Below(static_cast<uint64_t>(Phase::kEnded)));
    fault.nth = 1 + static_cast<int>(random.Below(2));
    fault.delay = Duration(static_cast<int64_t>(random.Below(random.Chance(0.5) ? 2'000'000 : 30'000'000)));
  } else if (needs_trainer || random.Chance(0.6)) {
    constexpr std::array kPlaces = {TrainerAt::kForward, TrainerAt::kGradients, TrainerAt::kGate, TrainerAt::kUpdate,
                                    TrainerAt::kParamSync};
    fault.in_trainer = kPlaces[random.Below(kPlaces.size())];
    if (fault.type == FaultType::kThrow) fault.in_trainer = TrainerAt::kForward;
    if (fault.type == FaultType::kThrowInUpdate) fault.in_trainer = TrainerAt::kUpdate;
    const bool gap = fault.type == FaultType::kShortGap || fault.type == FaultType::kLongGap;
    if (gap && plan.gate == GateKind::kControlPlane && random.Chance(0.5)) fault.in_trainer = TrainerAt::kGate;
    fault.step = 1 + random.Below(plan.steps);
    fault.delay = Duration(static_cast<int64_t>(random.Below(4'000'000)));
  } else {
    fault.at = Duration(static_cast<int64_t>(random.Below(1'500'000'000)));
  }
  return fault;
}

}  // namespace

Plan DrawPlan(uint64_t seed) {
  Random random(seed * 0x2545F4914F6CDD1Dull + 1);
  Plan plan;
  plan.seed = seed;
  DrawLayout(random, &plan);
  plan.policy.silence = 1s;
  plan.policy.step_timeout = 2s;
  plan.policy.join_timeout = 5s;
  plan.policy.grace = 4s;
  constexpr std::array kRespawns = {0, 1, 3, 10, 10, 10};
  plan.policy.max_respawns = kRespawns[random.Below(kRespawns.size())];
  if (random.Chance(0.85)) plan.policy.save_directory = "saves";
  if (!plan.policy.save_directory.empty() && random.Chance(0.4)) plan.policy.save_every = 2 + random.Below(3);
  plan.steps = 4 + random.Below(6);
  plan.gate = random.Chance(0.6) ? GateKind::kTrainer : random.Chance(0.75) ? GateKind::kControlPlane : GateKind::kOff;
  plan.watched = random.Chance(0.6);
  const uint64_t faults = 1 + random.Below(3);
  for (uint64_t i = 0; i < faults; ++i) plan.faults.push_back(DrawFault(random, plan, i == 0));
  return plan;
}

std::string FaultTypeName(FaultType type) {
  constexpr std::array<const char*, kFaultTypes> kNames = {
      "kill", "exit", "freeze", "throw", "throw_in_update", "uce_low", "uce_high", "comm_error", "short_gap", "long_gap",
      "bad_replacement", "handler_fails", "handler_hangs", "bit_flip", "save", "stop"};
  return kNames[static_cast<size_t>(type)];
}

std::string TrainerAtName(TrainerAt at) {
  constexpr std::array<const char*, 10> kNames = {"boot",   "parked",     "forward",    "gradients", "gate", "verdict",
                                                  "update", "param_sync", "save_point", "handler"};
  return kNames[static_cast<size_t>(at)];
}

std::string PlannedFault::ToString() const {
  std::string text = FaultTypeName(type) + " rank " + std::to_string(rank) + " x" + std::to_string(count);
  if (at) text += " at " + std::to_string(ToMilliseconds(*at)) + " ms";
  if (in_phase) text += " in " + std::string(PhaseName(*in_phase)) + " no. " + std::to_string(nth);
  if (in_trainer) text += " at " + TrainerAtName(*in_trainer) + " of step " + std::to_string(step);
  if (delay.count()) text += " + " + std::to_string(ToMilliseconds(delay)) + " ms";
  return text;
}

std::string Plan::ToString() const {
  std::string text = layout_name + ", " + std::to_string(steps) + " steps, respawns " +
                     std::to_string(policy.max_respawns) + ", save every " + std::to_string(policy.save_every) +
                     (policy.save_directory.empty() ? " (nowhere)" : "") + ", gate " +
                     (gate == GateKind::kTrainer ? "trainer" : gate == GateKind::kControlPlane ? "control" : "off") +
                     (watched ? ", watched" : "");
  for (const PlannedFault& fault : faults) text += "; " + fault.ToString();
  return text;
}

}  // namespace kintsugi::sim
