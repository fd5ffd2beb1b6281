// When a planned fault strikes and what it does to processes, trainers, memory and replacements.
#include <algorithm>

#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

void Cluster::OnPhase(Phase phase) {
  if (phase == Phase::kLock) TakeBackFlips();
  if (phase == Phase::kRollback)  // digests agree: what had flipped is repaired
    for (Process* const p : world_.processes.newest())
      if (p) p->silent_bit = 0;
  const int nth = ++entered_[phase];
  for (size_t i = 0; i < faults_.size(); ++i)
    if (const PlannedFault& plan = faults_[i].plan; plan.in_phase == phase && plan.nth == nth && !faults_[i].fired)
      world_.In(plan.delay, [this, i] { Strike(faults_[i]); });
}

void Cluster::OnTrainerAt(Process* p) {
  for (size_t i = 0; i < faults_.size(); ++i) {
    Fault& fault = faults_[i];
    const PlannedFault& plan = fault.plan;
    if (!fault.armed || fault.fired || plan.in_trainer != p->at || plan.rank != p->rank.value() ||
        plan.step != p->begun)
      continue;
    fault.armed = false;  // once
    // An exception is thrown by the trainer itself, the rest strikes while it is on its way.
    if (plan.type == FaultType::kThrow || plan.type == FaultType::kThrowInUpdate)
      Strike(fault);
    else
      world_.In(plan.delay, [this, i] { Strike(faults_[i]); });
  }
}

void Cluster::Strike(Fault& fault) {
  if (fault.fired || Over()) return;
  Process* const p = world_.processes.Living(Rank(fault.plan.rank));
  const Phase phase = world_.core().phase();
  const std::string where = p ? std::string(TrainerAtName(p->at)) : "gone";
  const PlannedFault plan = fault.plan;
  // Marked first: what it sets off may come back here.
  fault.fired = true;
  world_.Log("!! " + plan.ToString() + " (" + where + ")");
  const bool done = StrikeNodes(plan) || StrikeProcess(plan, p) || StrikeTrainer(plan, p) ||
                    StrikeReplacement(plan, p) || StrikeLink(plan, p);
  if (!done) {
    world_.Log("   ... finds nothing to strike");
    fault.fired = false;
    return;
  }
  world_.NoteProgress();
  ++world_.outcome.struck[{phase, plan.type}];
  if (!world_.course.ever_running) world_.course.start_disturbed = true;
}

bool Cluster::StrikeProcess(const PlannedFault& fault, Process* p) {
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
      p->slow = 2 + fault.count / 2;
      world_.For(p, world_.Between(500'000, 3'000'000), [p] { p->slow = 1; });
      return true;
    }
    case FaultType::kControllerKilled:
    case FaultType::kControllerFrozen:
      return LoseController(fault.type == FaultType::kControllerFrozen);
    case FaultType::kSave:
      Feed(OperatorSave{});
      return true;
    case FaultType::kStop:
      world_.course.stop_asked = true;
      Feed(OperatorStop{});
      return true;
    default:
      return false;
  }
}

bool Cluster::LoseNode(int rank) {
  if (!launchers_.empty()) return false;
  std::vector<Process*> lost;
  for (Process* const p : world_.processes.newest())
    if (p && p->alive && world_.plan.NodeOf(p->rank.value()) == world_.plan.NodeOf(rank)) lost.push_back(p);
  for (Process* const p : lost) {
    world_.losses.Lose(p->rank.value());
    processes_.Vanish(p);
  }
  return !lost.empty();
}

bool Cluster::StrikeTrainer(const PlannedFault& fault, Process* p) {
  if (fault.type == FaultType::kSourceLost) return StrikeSource();
  if (!p) return false;
  switch (fault.type) {
    case FaultType::kThrow:
      if (!p->core) return false;
      p->throw_next = true;
      return true;
    case FaultType::kThrowInUpdate:
      if (!p->core) return false;
      world_.losses.Lose(fault.rank);
      p->throw_in_update = true;
      return true;
    case FaultType::kHang:
      return Hang(fault, p);
    case FaultType::kUceLow:
    case FaultType::kUceHigh:
      if (!p->core || p->at == TrainerAt::kBoot) return false;
      world_.losses.Lose(fault.rank);
      Damage(p, fault.type == FaultType::kUceLow);
      return true;
    case FaultType::kCommError:
      if (p->group.value() == 0) return false;
      collectives_.BreakGroup(p->group);
      return true;
    case FaultType::kHandlerFails:
      world_.losses.Lose(fault.rank);
      p->failing_handlers = fault.count;
      return true;
    case FaultType::kHandlerHangs:
      world_.losses.Lose(fault.rank);
      p->hanging_handlers = fault.count;
      return true;
    case FaultType::kHandlerNonsense:
      world_.losses.Lose(fault.rank);
      p->nonsense_handlers = fault.count;
      return true;
    case FaultType::kBitFlip:  // in what its replacement will receive
      transfers_.FlipNext(fault.count);
      world_.losses.Lose(fault.rank, 1 + fault.count / 2);
      processes_.Die(p, "killed by SIGKILL");
      return true;
    case FaultType::kStateFlip:
      return rot_.Flip(p);
    case FaultType::kSilentFlip:
      return StrikeSilently(p);
    default:
      return false;
  }
}

// Its own work stands still: whatever it waits for does not come, or comes when the step is stopped.
bool Cluster::Hang(const PlannedFault& fault, Process* p) {
  if (p->at != TrainerAt::kForward && p->at != TrainerAt::kUpdate) return false;
  // One that a stop ends does not begin under a stop.
  if (!fault.lasting && p->Word().locked) return false;
  fault.lasting ? world_.losses.Lose(fault.rank) : world_.losses.Disturb(fault.rank);
  p->hung = true;
  p->hung_for_good = fault.lasting;
  ++p->activity;  // its timer is void
  return true;
}

// Whoever is sending dies.
bool Cluster::StrikeSource() {
  Process* const source = transfers_.SourceIn(world_.core().generation());
  if (!source) return false;
  world_.losses.Lose(source->rank.value());
  processes_.Die(source, "killed by SIGKILL");
  return true;
}

// A bit of a copy that nothing had touched, where its partners' were not touched either: VERIFY sees that they differ,
// and nothing tells which is right. (With a repaired partner the flipped copy would be taken for the right one.)
bool Cluster::StrikeSilently(Process* p) {
  if (!p->core || world_.core().phase() != Phase::kVerify || p->state.shards.empty() || p->silent_bit) return false;
  std::set<Rank> involved{p->rank};
  for (const Shard& shard : p->state.shards)
    for (Rank holder : world_.replicas.Holders(shard.layout, p->rank)) involved.insert(holder);
  for (Rank rank : involved)
    if (world_.core().members()[static_cast<size_t>(rank.value())].needs_repair) return false;
  for (Rank rank : involved) world_.losses.Lose(rank.value());
  p->silent_bit = 1ull << (p->rank.value() % 64);  // no two ranks' alike
  p->state.shards.front().tensors[0].value ^= p->silent_bit;
  p->flipped = true;
  return true;
}

// Where another fault ends a VERIFY before the digests are compared, nothing in the control plane can know of a bit
// that flipped meanwhile: the fault is taken back, since no promise covers it.
void Cluster::TakeBackFlips() {
  for (Process* const p : world_.processes.newest()) {
    if (!p || !p->silent_bit || world_.core().members()[static_cast<size_t>(p->rank.value())].needs_repair) continue;
    p->state.shards.front().tensors[0].value ^= std::exchange(p->silent_bit, 0);
    p->flipped = false;
  }
}

bool Cluster::StrikeReplacement(const PlannedFault& fault, Process* p) {
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

void Cluster::Damage(Process* p, bool low) {
  FaultReport report{.kind = low ? FaultKind::kMemoryLow : FaultKind::kMemoryHigh,
                     .text = "double bit error",
                     .step = kintsugi::Step(p->begun),
                     .since = world_.Now()};
  p->damaged = true;
  held_.Mark(p, core::StateMark::kWriting);
  p->received.clear();
  if (low) {
    Shard& shard = p->state.shards.front();
    const auto i = static_cast<size_t>(world_.random.Below(kTensorsPerLayout));
    shard.tensors[i].value = Mix(shard.tensors[i].value, 0xBADBAD);
    report.damaged_keys = {"l" + std::to_string(shard.layout) + "t" + std::to_string(i)};
  } else {
    for (Shard& shard : p->state.shards)
      for (Tensor& tensor : shard.tensors) tensor.value = Mix(tensor.value, 0xBADBAD);
  }
  if (p->at == TrainerAt::kUpdate) {
    p->damaged = false;  // met at once
    report.text += " in the update";
    return trainers_.TearUpdate(p, std::move(report));
  }
  agents_.Step(p, FaultSignal{std::move(report)});
}

bool Cluster::LoseGroup(int rank) {
  std::vector<Process*> lost;
  const Rank of(rank);
  for (Rank holder : world_.replicas.Holders(world_.replicas.LayoutsOf(of).front(), of))
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
      if (p->alive && p->core && p->at != TrainerAt::kBoot && how == 0) return Damage(p, false);
      processes_.Die(p, how == 1 ? "killed by SIGSEGV" : "killed by SIGKILL");
    });
  }
  return !lost.empty();
}

}  // namespace kintsugi::sim
