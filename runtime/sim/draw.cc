// How a seed becomes a plan.
#include <algorithm>
#include <array>
#include <set>

#include "runtime/sim/plan.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

constexpr int kRanksMax = 20'000;
constexpr int kGroupMax = 64;  // of data-parallel ranks in a large world

GroupClaim Group(int first, int last, int stride, int replicas) {
  GroupClaim claim;
  claim.replicas = replicas;
  for (int rank = first; rank <= last; rank += stride) claim.ranks.push_back(Rank(rank));
  return claim;
}

void Claim(Claims* claims, int layout, const GroupClaim& group) {
  for (Rank rank : group.ranks) (*claims)[rank][layout] = group;
}

// The largest size of groups that cuts n ranks without a rest, and a group into `parts`.
int GroupSize(int n, int parts) {
  int size = kGroupMax;
  while (size > parts && (n % size != 0 || size % parts != 0)) --size;
  return size;
}

// As a large job is cut: model-parallel by data-parallel, the data-parallel ranks of a group side by side or far apart;
// or experts in halves of the dense groups.
void DrawLargeLayout(Random& random, int n, Plan* plan) {
  const uint64_t kind = random.Below(3);
  const int size = GroupSize(n, kind == 2 && n % 4 == 0 ? 4 : 2);
  const int groups = n / size;
  plan->layout_name = "mp" + std::to_string(groups) + " x dp" + std::to_string(size) + " r2";
  for (int group = 0; group < groups; ++group) {
    const bool apart = kind == 1;
    const int first = apart ? group : group * size, stride = apart ? groups : 1;
    Claim(&plan->claims, 0, Group(first, first + (size - 1) * stride, stride, 2));
    if (kind != 2 || size % 4 != 0) continue;
    Claim(&plan->claims, 1, Group(first, first + size / 2 - 1, 1, 2));
    Claim(&plan->claims, 1, Group(first + size / 2, first + size - 1, 1, 2));
  }
  if (kind == 2 && size % 4 == 0) plan->layout_name += " + expert dp" + std::to_string(size / 2) + " r2";
}

// n ranks, even. One data-parallel group; two tensor-parallel ones; or two halves of experts beside the dense group.
void DrawLayout(Random& random, int n, Plan* plan) {
  plan->policy.world_size = n;
  if (n > kSmallWorld) return DrawLargeLayout(random, n, plan);
  const std::string dp = "dp" + std::to_string(n);
  const uint64_t drawn = n >= 4 ? random.Below(4) : 0, kind = n % 4 == 0 ? drawn : 0;
  if (kind <= 1) {
    plan->layout_name = dp + " r2";
    Claim(&plan->claims, 0, Group(0, n - 1, 1, 2));
  } else if (kind == 2) {
    plan->layout_name = "tp2 x dp" + std::to_string(n / 2) + " r2";
    Claim(&plan->claims, 0, Group(0, n - 2, 2, 2));
    Claim(&plan->claims, 0, Group(1, n - 1, 2, 2));
  } else {
    plan->layout_name = "dense " + dp + " r2 + expert dp" + std::to_string(n / 2) + " r2";
    Claim(&plan->claims, 0, Group(0, n - 1, 1, 2));
    Claim(&plan->claims, 1, Group(0, n / 2 - 1, 1, 2));
    Claim(&plan->claims, 1, Group(n / 2, n - 1, 1, 2));
  }
}

void SlicesOfSize(int n, int size, Plan* plan) {
  for (int first = 0; first < n; first += size) {
    std::vector<Rank> slice;
    for (int rank = first; rank < first + size; ++rank) slice.emplace_back(rank);
    plan->slices.push_back(std::move(slice));
  }
}

// Layouts that have a smaller form, and now and then one that has none without bytes that move.
void DrawElasticLayout(Random& random, int n, Plan* plan) {
  plan->policy.world_size = n;
  plan->claims.clear();
  const std::string dp = "dp" + std::to_string(n);
  const uint64_t kind = random.Below(8);
  if (kind < 4) {
    plan->layout_name = dp + " whole";
    Claim(&plan->claims, 0, Group(0, n - 1, 1, n));
    SlicesOfSize(n, 1, plan);
  } else if (kind < 6 && n >= 4) {
    plan->layout_name = "tp2 x dp" + std::to_string(n / 2) + " whole";
    Claim(&plan->claims, 0, Group(0, n - 2, 2, n / 2));
    Claim(&plan->claims, 0, Group(1, n - 1, 2, n / 2));
    SlicesOfSize(n, 2, plan);
  } else {
    plan->layout_name = dp + " r2";
    Claim(&plan->claims, 0, Group(0, n - 1, 1, 2));
    SlicesOfSize(n, kind == 7 ? n / 2 : 1, plan);
  }
  const int slice = static_cast<int>(plan->slices.front().size());
  for (int size = slice; size <= n; size += slice)
    if (size == n || random.Chance(0.7)) plan->worlds.push_back(size);
}

// In any layout, each size with its own: fewer copies or more, cut along other axes.
void DrawAnyLayout(Random& random, int n, Plan* plan) {
  plan->policy.world_size = n;
  plan->claims.clear();
  plan->layout_name = "any layout";
  for (int size = 1; size <= n; ++size) {
    std::vector<int> copies;
    for (int each = 1; each <= size; ++each)
      if (size % each == 0) copies.push_back(each);
    const CutRule rule{static_cast<CutKind>(random.Below(3)), copies[random.Below(copies.size())]};
    plan->cut_rules[size] = rule;
    if (size < n && random.Chance(0.2)) continue;
    plan->worlds.push_back(size);
    plan->layout_name +=
        ", " + std::to_string(size) + " " + std::string(CutKindName(rule.kind)) + " r" + std::to_string(rule.copies);
  }
  for (int rank = 0; rank < n; ++rank) plan->claims[Rank(rank)][0] = Group(0, n - 1, 1, plan->cut_rules[n].copies);
}

constexpr std::array kCommon = {FaultType::kKill,
                                FaultType::kKill,
                                FaultType::kKill,
                                FaultType::kExit,
                                FaultType::kFreeze,
                                FaultType::kPause,
                                FaultType::kNodeLost,
                                FaultType::kSlowRank,
                                FaultType::kThrow,
                                FaultType::kThrow,
                                FaultType::kThrowInUpdate,
                                FaultType::kHang,
                                FaultType::kUceLow,
                                FaultType::kUceLow,
                                FaultType::kUceHigh,
                                FaultType::kCommError,
                                FaultType::kHandlerFails,
                                FaultType::kHandlerHangs,
                                FaultType::kHandlerNonsense,
                                FaultType::kBitFlip,
                                FaultType::kSilentFlip,
                                FaultType::kSourceLost,
                                FaultType::kSourceLost,
                                FaultType::kBadReplacement,
                                FaultType::kSlowReplacement,
                                FaultType::kFastReplacement,
                                FaultType::kSave,
                                FaultType::kSave,
                                FaultType::kStop};
constexpr std::array kNetwork = {FaultType::kShortGap,     FaultType::kShortGap,      FaultType::kLongGap,
                                 FaultType::kHalfOpenHere, FaultType::kHalfOpenThere, FaultType::kCutUp,
                                 FaultType::kCutDown,      FaultType::kPartition,     FaultType::kSlowLink,
                                 FaultType::kBadFrame};

constexpr std::array kIncidents = {FaultType::kKill,    FaultType::kExit,          FaultType::kFreeze,
                                   FaultType::kThrow,   FaultType::kThrowInUpdate, FaultType::kUceLow,
                                   FaultType::kUceHigh, FaultType::kCommError,     FaultType::kBitFlip};

constexpr std::array kLaunchers = {FaultType::kControllerKilled, FaultType::kControllerKilled,
                                   FaultType::kControllerFrozen, FaultType::kControllerFrozen,
                                   FaultType::kStandbyKilled,    FaultType::kNodeLost,
                                   FaultType::kNodesCut,         FaultType::kNodesCut,
                                   FaultType::kNodesCutOneWay,   FaultType::kNodesCutInHalves};
// What may come between: of one rank.
constexpr std::array kOfRanks = {FaultType::kKill,          FaultType::kKill,    FaultType::kExit, FaultType::kThrow,
                                 FaultType::kThrowInUpdate, FaultType::kUceHigh, FaultType::kSave, FaultType::kStop};

bool IsOfPhase(FaultType type) { return type == FaultType::kSourceLost || type == FaultType::kSilentFlip; }

void DrawPlace(Random& random, const Plan& plan, bool first, PlannedFault* fault) {
  const bool hang = fault->type == FaultType::kHang;
  const bool needs_trainer = hang || fault->type == FaultType::kStateFlip || fault->type == FaultType::kThrow ||
                             fault->type == FaultType::kThrowInUpdate;
  const bool gap = fault->type == FaultType::kShortGap || fault->type == FaultType::kLongGap;
  if (IsOfPhase(fault->type)) {
    fault->in_phase = fault->type == FaultType::kSourceLost ? Phase::kRepair : Phase::kVerify;
    fault->nth = 1 + static_cast<int>(random.Below(2));
    if (fault->type == FaultType::kSourceLost) fault->delay = Duration(static_cast<int64_t>(random.Below(30'000'000)));
  } else if (!needs_trainer && !first && random.Chance(0.6)) {
    // Later faults fall into the incident that the first has opened.
    fault->in_phase = static_cast<Phase>(random.Below(static_cast<uint64_t>(Phase::kEnded)));
    // Without respawns a fault ends in a dump: there are few others.
    if (plan.policy.max_respawns == 0 && random.Chance(0.5))
      fault->in_phase = random.Chance(0.5) ? Phase::kDump : Phase::kRename;
    fault->nth = 1 + static_cast<int>(random.Below(2));
    if (fault->in_phase == Phase::kDump || fault->in_phase == Phase::kRename) fault->nth = 1;
    fault->delay = Duration(static_cast<int64_t>(random.Below(random.Chance(0.5) ? 2'000'000 : 30'000'000)));
  } else if (needs_trainer || random.Chance(0.6)) {
    // Parked in the last step is, most often, finished while others are not.
    constexpr std::array kPlaces = {TrainerAt::kForward, TrainerAt::kGradients, TrainerAt::kGate,
                                    TrainerAt::kUpdate,  TrainerAt::kParamSync, TrainerAt::kParked};
    fault->in_trainer = kPlaces[random.Below(kPlaces.size())];
    if (fault->type == FaultType::kThrow) fault->in_trainer = TrainerAt::kForward;
    if (fault->type == FaultType::kThrowInUpdate) fault->in_trainer = TrainerAt::kUpdate;
    if (hang) fault->in_trainer = random.Chance(0.7) ? TrainerAt::kForward : TrainerAt::kUpdate;
    if (gap && plan.gate == GateKind::kControlPlane && random.Chance(0.5)) fault->in_trainer = TrainerAt::kGate;
    fault->step = fault->in_trainer == TrainerAt::kParked ? plan.steps : 1 + random.Below(plan.steps);
    fault->delay = Duration(static_cast<int64_t>(random.Below(4'000'000)));
  } else {
    const int64_t span = 150'000'000 + static_cast<int64_t>(plan.steps) * plan.step_time.count();
    fault->at = Duration(static_cast<int64_t>(random.Below(static_cast<uint64_t>(span))));
  }
}

// A node first; then more of them, spare ones, roads, and what strikes ranks.
void DrawNodeFault(Random& random, bool first, PlannedFault* fault) {
  constexpr std::array kFirst = {FaultType::kNodeLost, FaultType::kNodeLost, FaultType::kStandbyKilled,
                                 FaultType::kControllerKilled, FaultType::kNodesCut};
  if (first) fault->type = kFirst[random.Below(kFirst.size())];
  if (!first && random.Chance(0.3)) fault->type = FaultType::kSpareNodeLost;
}

// An order that is to be met while others are lost.
void DrawOrder(Random& random, const Plan& plan, bool first, PlannedFault* fault) {
  if (first) {
    fault->type = FaultType::kReplace;
    fault->in_phase.reset();
    fault->in_trainer = TrainerAt::kForward;
    fault->step = 1 + random.Below(plan.steps);
  } else if (random.Chance(0.5)) {
    fault->type = plan.policy.verify_every == 0 || random.Chance(0.7) ? FaultType::kKill : FaultType::kStateFlip;
    // The one that holds the same, in the simplest layouts.
    fault->rank = (plan.faults.front().rank + plan.policy.world_size / 2) % plan.policy.world_size;
  }
  if (fault->type == FaultType::kStateFlip && !fault->in_trainer) {
    fault->at.reset();
    fault->in_phase.reset();
    fault->in_trainer = TrainerAt::kForward;
    fault->step = 1 + random.Below(plan.steps);
  }
}

// The network falls apart, a launcher is started anew, and then it falls apart otherwise: who was promised what is known to
// the launcher that is gone alone.
void DrawNewcomer(Random& random, const Plan& plan, bool first, PlannedFault* fault) {
  const auto within = [&random](uint64_t ns) { return Duration(static_cast<int64_t>(random.Below(ns))); };
  fault->in_phase.reset();
  fault->in_trainer.reset();
  fault->delay = {};
  if (first) {
    fault->type = FaultType::kNodesCut;
    fault->lasting = true;
    fault->at = 300ms + within(1'000'000'000);
    return;
  }
  fault->at = *plan.faults.front().at + 1s + within(3'000'000'000);
  if (plan.faults.size() > 2) return;  // and whatever else
  fault->type = plan.faults.size() == 1 ? FaultType::kStandbyKilled : FaultType::kNodesCut;
  fault->lasting = true;
}

// A node is drained; then what strikes it, its spare and its leader, and further orders, wherever the run stands.
void DrawDrain(Random& random, const Plan& plan, bool first, PlannedFault* fault) {
  constexpr std::array kOrders = {FaultType::kDrain, FaultType::kDrain, FaultType::kReplace, FaultType::kSave};
  if (!first && random.Chance(0.5)) fault->type = kOrders[random.Below(kOrders.size())];
  if (!first) return;
  fault->type = FaultType::kDrain;
  fault->at.reset();
  fault->in_phase.reset();
  fault->in_trainer = TrainerAt::kForward;
  fault->step = 1 + random.Below(plan.steps);
}

// For a while, or for good: of one node to some of the others, both ways or one.
void DrawRoad(Random& random, bool first, PlannedFault* fault) {
  if (!first) return;
  fault->type = FaultType::kRoadClosed;
  fault->lasting = random.Chance(0.6);
}

// Ranks come back, or leave by word: at any time, so that the faults before and after it strike the change as well.
void DrawScale(Random& random, const Plan& plan, PlannedFault* fault) {
  fault->type = FaultType::kScale;
  fault->in_phase.reset();
  fault->in_trainer.reset();
  fault->delay = {};
  fault->count = random.Chance(0.6) ? plan.policy.world_size : plan.worlds[random.Below(plan.worlds.size())];
  fault->at =
      100ms + Duration(static_cast<int64_t>(random.Below(plan.steps * static_cast<uint64_t>(plan.step_time.count()))));
}

// Ranks that leave or come by word, or processes that are lost for good; then what strikes the change that follows, in each of its
// phases: those of the start are over.
void DrawReshape(Random& random, const Plan& plan, bool first, PlannedFault* fault) {
  const bool lost_first = plan.policy.snapshot_every > 0 || plan.policy.snapshot_auto;
  if (first || random.Chance(0.25)) {
    if (random.Chance(!first ? 0.9 : lost_first ? 0.2 : 0.7)) return DrawScale(random, plan, fault);
    fault->type = FaultType::kKill;
    fault->at.reset();
    fault->in_phase.reset();
    fault->in_trainer = random.Chance(0.5) ? TrainerAt::kGate : TrainerAt::kForward;
    fault->step = 1 + random.Below(plan.steps);
    return;
  }
  if (fault->type == FaultType::kSourceLost || fault->type == FaultType::kSilentFlip) {
    fault->nth = 2 + static_cast<int>(random.Below(2));
    return;
  }
  if (fault->at || fault->in_trainer || random.Chance(0.2)) return;
  constexpr std::array kPhases = {Phase::kLock,   Phase::kStop,   Phase::kClean,    Phase::kRebuild,
                                  Phase::kRepair, Phase::kVerify, Phase::kRollback, Phase::kRunning};
  fault->in_phase = kPhases[random.Below(kPhases.size())];
  fault->nth = 1 + static_cast<int>(random.Below(3)) +
               (*fault->in_phase >= Phase::kRebuild || *fault->in_phase == Phase::kRunning);
}

// The leader is lost, and about then somebody wants the run to end; what else strikes, strikes launchers.
void DrawLeaderless(Random& random, const Plan& plan, bool first, PlannedFault* fault) {
  constexpr std::array kFirst = {FaultType::kControllerKilled, FaultType::kControllerKilled,
                                 FaultType::kNodeLost,         FaultType::kControllerFrozen,
                                 FaultType::kNodesCut,         FaultType::kNodesCutInHalves};
  fault->in_phase.reset();
  fault->in_trainer.reset();
  fault->delay = {};
  if (first) {
    fault->type = kFirst[random.Below(kFirst.size())];
    fault->count = 1;  // of a node: the leading one
    fault->at = 300ms + Duration(static_cast<int64_t>(random.Below(4'000'000'000)));
    return;
  }
  const bool second = plan.faults.size() == 1;
  fault->type = second || random.Chance(0.3) ? FaultType::kStop : kLaunchers[random.Below(kLaunchers.size())];
  const uint64_t within = second ? 2'000'000'000 : 6'000'000'000;
  fault->at = *plan.faults.front().at + Duration(static_cast<int64_t>(random.Below(within)));
}

// Some alone, some one after another. In the first step of all nothing was computed before.
void DrawRefusals(Random& random, Plan* plan) {
  using Of = PlannedRefusal::Of;
  std::set<uint64_t> steps;
  for (uint64_t i = 1 + random.Below(3); i > 0; --i)
    steps.insert(!steps.empty() && random.Chance(0.4) ? std::min(*steps.rbegin() + 1, plan->steps)
                                                      : 1 + random.Below(plan->steps));
  for (const uint64_t step : steps) {
    const uint64_t kind = random.Below(10);
    plan->refusals.push_back({kind < 6   ? Of::kData
                              : kind < 8 ? Of::kMachine
                                         : Of::kNothing,
                              step, static_cast<int>(random.Below(static_cast<uint64_t>(plan->policy.world_size)))});
  }
  plan->back = random.Chance(0.5) ? 1 + random.Below(4) : 0;
  plan->most = random.Chance(0.8) ? 100 : static_cast<int>(random.Below(4));
  if (plan->gate == GateKind::kOff) plan->gate = GateKind::kTrainer;
}

PlannedFault DrawFault(Random& random, const Plan& plan, const Profile& profile, bool first) {
  PlannedFault fault;
  fault.type =
      random.Chance(profile.network) ? kNetwork[random.Below(kNetwork.size())] : kCommon[random.Below(kCommon.size())];
  if (profile.controller > 0 && random.Chance(profile.controller))
    fault.type = random.Chance(0.5) ? FaultType::kControllerKilled : FaultType::kControllerFrozen;
  if (profile.elections)
    fault.type =
        random.Chance(0.65) ? kLaunchers[random.Below(kLaunchers.size())] : kOfRanks[random.Below(kOfRanks.size())];
  if (profile.spare_nodes_max > 0) DrawNodeFault(random, first, &fault);
  if (profile.roads) DrawRoad(random, first, &fault);
  if (profile.comparison && first) fault.type = FaultType::kStateFlip;
  if (profile.elastic && (first || random.Chance(0.4)))
    fault.type = random.Chance(0.8) ? FaultType::kKill : random.Chance(0.5) ? FaultType::kExit : FaultType::kNodeLost;
  if (profile.hosts_return && (first || random.Chance(0.5))) fault.type = FaultType::kNodeLost;
  const bool scales = profile.elastic && !first && random.Chance(plan.faults.size() == 1 ? 0.7 : 0.3);
  if (profile.incident) fault.type = kIncidents[random.Below(kIncidents.size())];
  if (profile.groups > 0 && random.Chance(profile.groups)) fault.type = FaultType::kGroupLost;
  if (profile.pairs > 0 && random.Chance(profile.pairs)) fault.type = FaultType::kGroupLost;
  fault.rank = static_cast<int>(random.Below(static_cast<uint64_t>(plan.policy.world_size)));
  fault.count = 1 + static_cast<int>(random.Below(3));
  fault.lasting = random.Chance(0.4);
  if (profile.spare_nodes_max > 0 && first) fault.lasting = random.Chance(0.3);  // mostly for good
  if (profile.hosts_return && fault.type == FaultType::kNodeLost) fault.lasting = random.Chance(0.75);
  if (fault.type == FaultType::kHandlerHangs) fault.count = 1 + static_cast<int>(random.Below(4));
  if (fault.type == FaultType::kHandlerFails && random.Chance(0.3)) fault.count = 100;
  DrawPlace(random, plan, first, &fault);
  if (scales) DrawScale(random, plan, &fault);
  if (profile.relayout) DrawReshape(random, plan, first, &fault);
  if (profile.orders) DrawOrder(random, plan, first, &fault);
  if (profile.newcomers) DrawNewcomer(random, plan, first, &fault);
  if (profile.drains) DrawDrain(random, plan, first, &fault);
  if (profile.leaderless) DrawLeaderless(random, plan, first, &fault);
  // Before the run has begun nothing is held.
  if (profile.pairs > 0 && first && !fault.in_trainer && !IsOfPhase(fault.type)) {
    fault.at.reset();
    fault.in_phase.reset();
    fault.in_trainer = random.Chance(0.5) ? TrainerAt::kGate : TrainerAt::kForward;
    fault.step = 1 + random.Below(plan.steps);
  }
  return fault;
}

}  // namespace

const std::vector<Profile>& Profiles() {
  static const std::vector<Profile> kProfiles = {
      {.name = "default",
       .description = "8 ranks on 2 nodes, 240 steps of 250 ms, 4 beats a second, 4 to 6 faults",
       .nodes = 2,
       .steps_min = 240,
       .steps_max = 240,
       .step_time = 250ms,
       .beat = 250ms,
       .faults_min = 4,
       .faults_max = 6,
       .ranks = 8},
      {.name = "quick", .description = "2 to 8 ranks, a few steps of some milliseconds, 1 to 3 faults", .nodes = 2},
      {.name = "one",
       .description = "64 ranks, 8 to a node, and one incident: for runs of thousands of ranks (--ranks)",
       .steps_min = 4,
       .steps_max = 4,
       .step_time = 50ms,
       .beat = 250ms,
       .faults_min = 1,
       .faults_max = 1,
       .network = 0,
       .ranks = 64,
       .node_ranks = 8,
       .incident = true},
      {.name = "network",
       .description = "as quick, with 2 to 5 faults that mostly strike connections",
       .nodes = 2,
       .steps_min = 6,
       .steps_max = 30,
       .step_time = 20ms,
       .faults_min = 2,
       .faults_max = 5,
       .network = 0.8},
      {.name = "spares",
       .description = "as quick, with one or two warm processes waiting on each node",
       .nodes = 2,
       .spares_max = 2},
      {.name = "adopt",
       .description = "as quick, with 1 to 4 faults, and launchers that hold the memory of processes that are gone",
       .nodes = 2,
       .faults_min = 1,
       .faults_max = 4,
       .controller = 0.15,
       .adopts = true},
      {.name = "held",
       .description = "as adopt, with 1 to 5 faults that often take all holders of a shard, in one way or another",
       .nodes = 2,
       .faults_min = 1,
       .faults_max = 5,
       .network = 0.1,
       .controller = 0.1,
       .adopts = true,
       .pairs = 0.5},
      {.name = "away",
       .description = "as elections, with launchers that hold the memory of processes that are gone",
       .nodes = 2,
       .steps_min = 10,
       .steps_max = 40,
       .step_time = 20ms,
       .faults_min = 1,
       .faults_max = 5,
       .network = 0,
       .adopts = true,
       .elections = true,
       .pairs = 0.1},
      {.name = "doubt",
       .description = "as comparison, with launchers that hold the memory of processes that are gone",
       .nodes = 2,
       .steps_min = 8,
       .steps_max = 20,
       .faults_max = 4,
       .network = 0.1,
       .adopts = true,
       .comparison = true},
      {.name = "snapshots",
       .description = "as quick, with 10 to 40 steps of 20 ms, in-memory snapshots, and whole groups lost often",
       .nodes = 2,
       .steps_min = 10,
       .steps_max = 40,
       .step_time = 20ms,
       .faults_max = 4,
       .groups = 0.35},
      {.name = "takeover",
       .description = "as quick, with 2 to 4 faults, of which many kill or freeze the controller",
       .nodes = 2,
       .faults_min = 2,
       .faults_max = 4,
       .controller = 0.4},
      {.name = "elections",
       .description =
           "2 to 4 nodes whose launchers elect who leads; 1 to 4 faults, most of them strike launchers and the "
           "roads between nodes",
       .nodes = 2,
       .steps_min = 10,
       .steps_max = 40,
       .step_time = 20ms,
       .faults_min = 1,
       .faults_max = 4,
       .network = 0,
       .elections = true},
      {.name = "spare_nodes",
       .description = "3 or 4 nodes and 1 or 2 spare ones that take the ranks of a node over which stays away; 1 to 4 "
                      "faults, a node "
                      "first",
       .nodes = 3,
       .steps_min = 40,
       .steps_max = 120,
       .step_time = 50ms,
       .faults_min = 1,
       .faults_max = 4,
       .network = 0,
       .elections = true,
       .spare_nodes_max = 2},
      {.name = "orders",
       .description =
           "as quick, with 10 to 40 steps of 20 ms: an operator asks for a new process of a rank, and up to 3 faults, "
           "often of the rank that holds the same; launchers may hold memory, replicas may be compared",
       .nodes = 2,
       .steps_min = 10,
       .steps_max = 40,
       .step_time = 20ms,
       .faults_min = 1,
       .faults_max = 4,
       .network = 0.05,
       .orders = true},
      {.name = "newcomers",
       .description = "2 to 4 nodes whose launchers elect; roads between them change while a launcher is killed and "
                      "started anew, and up to 2 other faults",
       .nodes = 3,
       .steps_min = 120,
       .steps_max = 200,
       .step_time = 50ms,
       .faults_min = 3,
       .faults_max = 5,
       .network = 0,
       .elections = true,
       .newcomers = true},
      {.name = "drains",
       .description =
           "as spare_nodes: an operator drains a node, and up to 3 faults and further orders, in incidents too",
       .nodes = 3,
       .steps_min = 40,
       .steps_max = 120,
       .step_time = 50ms,
       .faults_min = 1,
       .faults_max = 4,
       .network = 0,
       .elections = true,
       .spare_nodes_max = 2,
       .drains = true},
      {.name = "roads",
       .description =
           "3 or 4 nodes whose launchers elect; roads between nodes that are closed to the ranks alone, for a while or "
           "for good, and up to 2 other faults; perhaps a spare node",
       .nodes = 3,
       .steps_min = 40,
       .steps_max = 120,
       .step_time = 50ms,
       .faults_min = 1,
       .faults_max = 3,
       .network = 0,
       .elections = true,
       .roads = true},
      {.name = "elastic",
       .description =
           "as quick, with 10 to 100 steps of 20 ms, trainers that offer other worlds, and 1 to 5 faults: processes "
           "that are lost for good first, orders of more ranks or fewer, then whatever, in every phase of the "
           "change; the controller, too",
       .nodes = 2,
       .steps_min = 10,
       .steps_max = 100,
       .step_time = 20ms,
       .faults_min = 1,
       .faults_max = 5,
       .controller = 0.15,
       .elastic = true},
      {.name = "elastic_nodes",
       .description = "as elastic, on 2 to 4 nodes whose launchers elect who leads, which are lost as well",
       .nodes = 2,
       .steps_min = 10,
       .steps_max = 100,
       .step_time = 20ms,
       .faults_min = 1,
       .faults_max = 5,
       .network = 0,
       .elections = true,
       .elastic = true},
      {.name = "elastic_hosts",
       .description =
           "3 or 4 nodes whose launchers elect; a node is lost first, for good or for a while, and the run goes on "
           "without "
           "it; once it is back its ranks come to the run again; then whatever, orders of more ranks or fewer among it",
       .nodes = 3,
       .steps_min = 60,
       .steps_max = 200,
       .step_time = 50ms,
       .faults_min = 1,
       .faults_max = 4,
       .network = 0,
       .elections = true,
       .elastic = true,
       .hosts_return = true},
      {.name = "relayout",
       .description = "as elastic, with trainers that offer any layout: each size of the world is cut in its own way, "
                      "and where ranks leave or come the agents' own plan moves every piece; 1 to 5 faults, most of "
                      "them in the phases "
                      "of a change",
       .nodes = 2,
       .steps_min = 10,
       .steps_max = 100,
       .step_time = 20ms,
       .faults_min = 1,
       .faults_max = 5,
       .elastic = true,
       .relayout = true},
      {.name = "lost_shards",
       .description = "as relayout, with in-memory snapshots: ranks are lost for good whose pieces nobody else holds",
       .nodes = 2,
       .steps_min = 10,
       .steps_max = 100,
       .step_time = 20ms,
       .faults_min = 1,
       .faults_max = 5,
       .groups = 0.15,
       .elastic = true,
       .relayout = true},
      {.name = "leaderless",
       .description =
           "2 to 4 nodes whose launchers elect who leads; the leader is lost, and about then an operator or a batch "
           "system asks the run to save and leave; up to 2 more faults of launchers and roads",
       .nodes = 2,
       .steps_min = 120,
       .steps_max = 200,
       .step_time = 200ms,
       .faults_min = 2,
       .faults_max = 4,
       .network = 0,
       .elections = true,
       .leaderless = true},
      {.name = "refusals",
       .description =
           "as snapshots, with controllers that are lost, and 1 to 3 steps that a rank refuses: for their data, "
           "with or without those before them, for a machine that computes wrongly once, or for nothing",
       .nodes = 2,
       .steps_min = 10,
       .steps_max = 40,
       .step_time = 20ms,
       .faults_max = 4,
       .controller = 0.1,
       .groups = 0.2,
       .refusals = true},
      {.name = "comparison",
       .description =
           "as quick, with longer runs, replicas compared every 1 to 4 steps, a bit that flips, and up to 2 other "
           "faults",
       .nodes = 2,
       .steps_min = 8,
       .steps_max = 20,
       .network = 0.1,
       .comparison = true},
  };
  return kProfiles;
}

Result<Profile> FindProfile(const std::string& name) {
  std::string known;
  for (const Profile& profile : Profiles()) {
    if (profile.name == name) return profile;
    known += (known.empty() ? "" : ", ") + profile.name;
  }
  return Status(StatusCode::kInvalidArgument, "there is no profile '" + name + "'; there are: " + known);
}

Status CheckRanks(int ranks) {
  if (ranks == 0 || (ranks >= 2 && ranks <= kRanksMax && ranks % 2 == 0)) return Status::Ok();
  return {StatusCode::kInvalidArgument,
          "ranks is " + std::to_string(ranks) + "; it must be an even number from 2 to " + std::to_string(kRanksMax)};
}

Plan DrawPlan(uint64_t seed, const Profile& profile, int ranks) {
  Random random(seed * 0x2545F4914F6CDD1Dull + 1);
  Plan plan;
  plan.seed = seed;
  constexpr std::array kRanks = {2, 4, 4, 4, 4, 8};
  const int drawn = kRanks[random.Below(kRanks.size())];
  plan.nodes = profile.elections ? 2 + static_cast<int>(random.Below(3)) : profile.nodes;
  plan.elections = profile.elections;
  if (profile.spare_nodes_max > 0) {
    plan.nodes = 3 + static_cast<int>(random.Below(2));
    plan.spare_nodes = 1 + static_cast<int>(random.Below(static_cast<uint64_t>(profile.spare_nodes_max)));
    plan.spare_after = std::chrono::milliseconds(1500 + random.Below(2000));
  }
  if (profile.roads) {
    plan.nodes = 3 + static_cast<int>(random.Below(2));
    plan.spare_nodes = static_cast<int>(random.Below(2));
    plan.spare_after = std::chrono::milliseconds(1500 + random.Below(2000));
  }
  if (profile.hosts_return) {
    plan.nodes = 2 + static_cast<int>(random.Below(3));
    plan.shrink_after = std::chrono::milliseconds(300 + random.Below(1500));
  }
  if (profile.elections && ranks == 0) ranks = plan.nodes * (random.Chance(0.7) ? 2 : 4);
  DrawLayout(random, ranks > 0 ? ranks : profile.ranks > 0 ? profile.ranks : drawn, &plan);
  if (profile.relayout)
    DrawAnyLayout(random, plan.policy.world_size, &plan);
  else if (profile.elastic)
    DrawElasticLayout(random, plan.policy.world_size, &plan);
  if (profile.node_ranks > 0) plan.nodes = std::max(1, plan.policy.world_size / profile.node_ranks);
  plan.step_time = profile.step_time;
  plan.beat = profile.beat;
  plan.tick = 20ms;
  plan.policy.silence = 1s;
  plan.policy.step_timeout = 2s;
  plan.policy.hang_least = 1500ms;
  plan.policy.join_timeout = 5s;
  plan.policy.grace = 4s;
  constexpr std::array kRespawns = {0, 1, 3, 10, 10, 10};
  plan.policy.max_respawns = kRespawns[random.Below(kRespawns.size())];
  if (profile.hosts_return)
    plan.policy.max_respawns = random.Chance(0.8) ? 10 : 0;
  else if (profile.relayout)
    plan.policy.max_respawns = random.Chance(0.5) ? 0 : 1 + static_cast<int>(random.Below(3));
  else if (profile.elastic && random.Chance(0.8))
    plan.policy.max_respawns = random.Chance(0.8) ? 0 : 1;
  plan.steps = profile.steps_min + random.Below(profile.steps_max - profile.steps_min + 1);
  if (random.Chance(0.85)) plan.policy.save_directory = "saves";
  if (!plan.policy.save_directory.empty() && random.Chance(0.4))
    plan.policy.save_every = plan.steps / 4 + 1 + random.Below(3);
  plan.gate = random.Chance(0.6) ? GateKind::kTrainer : random.Chance(0.75) ? GateKind::kControlPlane : GateKind::kOff;
  plan.policy.can_spawn = random.Chance(0.75);
  if (profile.relayout)
    plan.policy.can_spawn = random.Chance(0.9), plan.policy.adopts = plan.policy.can_spawn && random.Chance(0.5);
  if (profile.adopts) plan.policy.can_spawn = plan.policy.adopts = true;
  if (profile.spares_max > 0) {
    plan.policy.can_spawn = true;
    plan.spares = 1 + static_cast<int>(random.Below(static_cast<uint64_t>(profile.spares_max)));
  }
  plan.watched = plan.policy.can_spawn && random.Chance(0.7);
  if (profile.incident) {
    plan.policy.can_spawn = plan.watched = true;
    plan.policy.max_respawns = 10;
    if (plan.gate == GateKind::kOff) plan.gate = GateKind::kTrainer;
  }
  if (profile.elections) {
    plan.policy.can_spawn = plan.policy.needs_consent = plan.watched = true;
    plan.policy.consent_wait = plan.spare_nodes > 0 ? 6s : 3s;
  }
  if (profile.elections) plan.policy.node_ranks = plan.policy.world_size / plan.nodes;
  if (profile.orders) {
    plan.policy.adopts = plan.policy.can_spawn && random.Chance(0.5);
    if (random.Chance(0.5)) plan.policy.verify_every = 1 + random.Below(6);
  }
  if (profile.comparison) plan.policy.verify_every = 1 + random.Below(4);
  if (profile.groups > 0) {
    plan.policy.snapshot_auto = random.Chance(0.15);
    if (!plan.policy.snapshot_auto) plan.policy.snapshot_every = 1 + random.Below(5);
    if (random.Chance(0.5)) plan.policy.verify_every = 1 + random.Below(6);
    if (random.Chance(0.5)) plan.policy.save_directory.clear(), plan.policy.save_every = 0;
  }
  if (profile.controller > 0) {
    plan.policy.needs_consent = plan.policy.can_spawn;
    plan.policy.consent_wait = 5s;
  }
  const uint64_t faults = profile.faults_min + random.Below(profile.faults_max - profile.faults_min + 1);
  for (uint64_t i = 0; i < faults; ++i) plan.faults.push_back(DrawFault(random, plan, profile, i == 0));
  if (profile.refusals) DrawRefusals(random, &plan);
  return plan;
}

}  // namespace kintsugi::sim
