#include "runtime/sim/process_faults.h"

namespace kintsugi::sim {

bool ProcessFaults::Strike(const PlannedFault& fault, Process* p) {
  switch (fault.type) {
    case FaultType::kKill:
    case FaultType::kExit:
      if (!p) return false;
      world_.losses.Lose(fault.rank);
      processes_.Die(p, fault.type == FaultType::kKill ? "killed by SIGKILL" : "exited with code 3");
      return true;
    case FaultType::kFreeze:  // for good
      if (!p) return false;
      world_.losses.Late(fault.rank);
      if (!world_.plan.policy.can_spawn)
        world_.In(world_.Between(5'000'000, 8'000'000), [this, p] { processes_.Die(p, "killed by its supervisor"); });
      processes_.Freeze(p, std::nullopt);
      return true;
    case FaultType::kPause:
      if (!p) return false;
      fault.lasting ? world_.losses.Late(fault.rank) : world_.losses.Disturb(fault.rank);
      processes_.Freeze(p, fault.lasting ? world_.Between(1'000'000, 5'000'000) : world_.Between(20'000, 500'000));
      return true;
    case FaultType::kNodeLost:
      return LoseNode(fault.rank);
    case FaultType::kGroupLost:
      return LoseGroup(fault.rank);
    case FaultType::kSlowRank: {
      if (!p) return false;
      world_.losses.Disturb(fault.rank);
      p->troubles.slow = 2 + fault.count / 2;
      world_.For(p, world_.Between(500'000, 3'000'000), [p] { p->troubles.slow = 1; });
      return true;
    }
    case FaultType::kControllerKilled:
    case FaultType::kControllerFrozen:
      return takeover_.Lose(fault.type == FaultType::kControllerFrozen);
    case FaultType::kSave:
      controllers_.Feed(OperatorSave{});
      return true;
    case FaultType::kReplace:
      if (world_.seat().ended || world_.seat().down || !world_.core().WhyNotReplaced(Rank(fault.rank)).empty())
        return false;
      world_.losses.Ask(fault.rank);
      controllers_.Feed(core::OperatorReplace{Rank(fault.rank)});
      return true;
    case FaultType::kScale:
      return Scale(fault.count, 40);
    case FaultType::kStop:
      world_.course.stop_asked = true;
      controllers_.Feed(OperatorStop{});
      return true;
    default:
      return StrikeReplacement(fault, p);
  }
}

bool ProcessFaults::Scale(int ranks, int again) {
  if (world_.seat().ended) return false;
  if (!world_.seat().down && world_.core().WhyNotScaled(ranks).empty()) {
    controllers_.Feed(core::OperatorScale{ranks});
    return true;
  }
  if (again > 0) world_.In(world_.Between(10'000, 50'000), [this, ranks, again] { Scale(ranks, again - 1); });
  return again > 0;
}

bool ProcessFaults::LoseNode(int rank) {
  if (world_.plan.elections) return false;
  std::vector<Process*> lost;
  for (Process* const p : world_.processes.newest())
    if (p && p->alive && world_.plan.NodeOf(p->rank.value()) == world_.plan.NodeOf(rank)) lost.push_back(p);
  for (Process* const p : lost) {
    world_.losses.Lose(p->rank.value());
    processes_.Vanish(p);
  }
  return !lost.empty();
}

bool ProcessFaults::LoseGroup(int rank) {
  std::vector<Process*> lost;
  const Rank of(rank);
  const ReplicaMap& replicas = world_.cuts.whole().replicas;
  for (Rank holder : replicas.Holders(replicas.LayoutsOf(of).front(), of))
    if (Process* const p = world_.processes.Newest(holder); p && p->alive) lost.push_back(p);
  for (Process* const p : lost) {
    world_.losses.Lose(p->rank.value());
    if (!world_.plan.policy.adopts) {
      world_.In(world_.Between(1, 2000), [this, p] { processes_.Die(p, "killed by SIGKILL"); });
      continue;
    }
    // What is left of them differs: a crash, a place in the step, or one that lives on with nothing of use.
    const uint64_t how = world_.random.Below(6);
    world_.In(world_.Between(1, 4000), [this, p, how] {
      if (p->alive && p->core && p->at != TrainerAt::kBoot && how == 0) return memory_.Damage(p, false);
      processes_.Die(p, how == 1 ? "killed by SIGSEGV" : "killed by SIGKILL");
    });
  }
  return !lost.empty();
}

bool ProcessFaults::StrikeReplacement(const PlannedFault& fault, Process* p) {
  Processes::Fates& fates = processes_.FatesOf(fault.rank);
  int* const planned = fault.type == FaultType::kBadReplacement    ? &fates.bad
                       : fault.type == FaultType::kSlowReplacement ? &fates.slow
                       : fault.type == FaultType::kFastReplacement ? &fates.fast
                                                                   : nullptr;
  if (!planned) return false;
  *planned += fault.type == FaultType::kSlowReplacement ? 1 : fault.count;
  if (!p) return true;
  world_.losses.Lose(fault.rank);
  processes_.Die(p, "killed by SIGKILL");
  return true;
}

}  // namespace kintsugi::sim
