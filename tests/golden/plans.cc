#include "tests/golden/plans.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;
using sim::FaultType;
using sim::PlannedFault;
using sim::TrainerAt;

// n ranks in one data-parallel group, two replicas of each shard: rank r and rank r + n/2.
sim::Plan World(int n, std::vector<PlannedFault> faults) {
  sim::Plan plan;
  plan.seed = 1;
  plan.policy.world_size = n;
  plan.policy.silence = 1s;
  plan.policy.step_timeout = 2s;
  plan.policy.hang_least = 1500ms;
  plan.policy.join_timeout = 5s;
  plan.policy.grace = 4s;
  plan.policy.save_directory = "saves";
  core::GroupClaim group{{}, 2};
  for (int rank = 0; rank < n; ++rank) group.ranks.push_back(Rank(rank));
  for (Rank rank : group.ranks) plan.claims[rank][0] = group;
  plan.layout_name = "dp" + std::to_string(n) + " r2";
  plan.steps = 6;
  plan.step_time = 250ms;
  plan.beat = 50ms;
  plan.tick = 20ms;
  plan.faults = std::move(faults);
  return plan;
}

PlannedFault In(FaultType type, int rank, TrainerAt at, uint64_t step) {
  return {.type = type, .rank = rank, .in_trainer = at, .step = step, .delay = 2ms};
}
PlannedFault During(FaultType type, int rank, core::Phase phase) {
  // The run's own start passes through the same phases once.
  return {.type = type, .rank = rank, .in_phase = phase, .nth = phase >= core::Phase::kRebuild ? 2 : 1, .delay = 1ms};
}

}  // namespace

std::vector<GoldenPlan> GoldenPlans() {
  std::vector<GoldenPlan> plans;
  const auto add = [&](const char* name, const char* remark, sim::Plan plan) {
    plans.push_back({name, remark, std::move(plan)});
  };
  add("kill_respawn",
      "Rank 1 is killed in the forward pass of step 3. Its launcher says so at once: all meet at step 2, a new "
      "process\n"
      "takes its place and gets its state from rank 0.",
      World(2, {In(FaultType::kKill, 1, TrainerAt::kForward, 3)}));
  sim::Plan with_spare = World(2, {In(FaultType::kKill, 1, TrainerAt::kForward, 3)});
  with_spare.spares = 1;
  add("kill_spare",
      "Rank 1 is killed in the forward pass of step 3, and a warm process waits on its node: that one becomes rank 1.",
      std::move(with_spare));
  sim::Plan with_memory = World(2, {In(sim::FaultType::kKill, 1, sim::TrainerAt::kForward, 3)});
  with_memory.policy.adopts = true;
  add("kill_adopt",
      "Rank 1 is killed in the forward pass of step 3. Its launcher still has its memory, which stands at step 2, "
      "where the\n"
      "other waits: the new process maps it, and nothing is streamed.",
      std::move(with_memory));
  add("exception_retry",
      "Rank 1 throws in the forward pass of step 3, outside of the update: no state is lost. The step is run again "
      "and\n"
      "nothing moves.",
      World(2, {In(FaultType::kThrow, 1, TrainerAt::kForward, 3)}));
  add("exception_in_update_rebuild",
      "Rank 1 throws in the middle of update 3: its state is no step's. Its process lives, so it is kept, and all of "
      "its\n"
      "state is streamed anew from rank 0.",
      World(2, {In(FaultType::kThrowInUpdate, 1, TrainerAt::kUpdate, 3)}));
  add("memory_low_patch",
      "Memory of rank 1 is damaged and the damage is confined to one tensor: only that one is streamed from rank 0.",
      World(2, {In(FaultType::kUceLow, 1, TrainerAt::kForward, 3)}));
  add("memory_high_rebuild",
      "Memory of rank 1 is damaged and none of it can be trusted any more, but its process lives: everything is "
      "streamed\n"
      "from rank 0, no process is replaced.",
      World(2, {In(FaultType::kUceHigh, 1, TrainerAt::kForward, 3)}));
  add("silence",
      "The process of rank 1 freezes: its connection stays, its beats do not come. After a second of silence it is "
      "killed\n"
      "and replaced.",
      World(2, {In(FaultType::kFreeze, 1, TrainerAt::kForward, 3)}));
  add("healed_gap",
      "The control connection of rank 1 breaks and is back within the confirmation window. The run waits in CONFIRM "
      "and\n"
      "goes on as it was: no new generation, nobody is stopped.",
      World(2, {In(FaultType::kShortGap, 1, TrainerAt::kForward, 3)}));
  add("two_faults",
      "Rank 1 is killed; while its replacement is being repaired rank 0 is killed too. A second attempt begins with a\n"
      "generation of its own, and both shards still have a holder: ranks 2 and 3.",
      World(4, {In(FaultType::kKill, 1, TrainerAt::kForward, 3), During(FaultType::kKill, 0, core::Phase::kRepair)}));
  sim::Plan reload =
      World(2, {In(FaultType::kKill, 1, TrainerAt::kForward, 5), During(FaultType::kKill, 0, core::Phase::kLock)});
  reload.policy.save_every = 2;
  add("both_replicas_lost_reload",
      "Both holders of the only shard are killed. The newest complete checkpoint, of step 4, is read online by their\n"
      "replacements.",
      reload);
  sim::Plan dump = World(2, {In(FaultType::kKill, 1, TrainerAt::kForward, 3)});
  dump.policy.max_respawns = 0;
  add("no_respawn_left_dump",
      "Rank 1 is killed and may not be replaced. What rank 0 holds is the whole state: it is written as a checkpoint, "
      "and\n"
      "the run ends with the code that says resume me.",
      dump);
  sim::Plan hang = World(2, {In(FaultType::kHang, 1, TrainerAt::kForward, 6)});
  hang.steps = 8;
  add("hang",
      "Rank 1 stands still in step 6 while its agent lives. A step takes a quarter of a second by then, and the limit "
      "is\n"
      "two: the step is stopped, rank 1 comes out of it and nobody is replaced.",
      hang);
  PlannedFault flip = In(FaultType::kBitFlip, 1, TrainerAt::kForward, 3);
  add("digest_mismatch",
      "Rank 1 is killed, and a bit flips on the way to its replacement. VERIFY sees that the copies differ and knows "
      "which\n"
      "one was just made: it is streamed once more.",
      World(2, {flip}));
  add("preemption",
      "The run is asked to stop: the step is finished, the state is saved within the grace period, and everybody "
      "leaves\n"
      "with the code that says resume me. No incident.",
      World(2, {In(FaultType::kStop, 0, TrainerAt::kForward, 3)}));
  return plans;
}

}  // namespace kintsugi
