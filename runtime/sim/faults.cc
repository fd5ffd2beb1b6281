// When a planned fault strikes and what it does to processes, trainers, memory and replacements.
#include <algorithm>

#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

void Cluster::OnPhase(Phase phase) {
  if (phase == Phase::kLock) TakeBackFlips();
  if (phase == Phase::kRollback)  // digests agree: what had flipped is repaired
    for (const ProcessPtr p : processes_)
      if (p) p->silent_bit = 0;
  const int nth = ++entered_[phase];
  for (size_t i = 0; i < faults_.size(); ++i)
    if (const PlannedFault& plan = faults_[i].plan; plan.in_phase == phase && plan.nth == nth && !faults_[i].fired)
      In(plan.delay, [this, i] { Strike(faults_[i]); });
}

void Cluster::OnTrainerAt(ProcessPtr p) {
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
      In(plan.delay, [this, i] { Strike(faults_[i]); });
  }
}

Cluster::ProcessPtr Cluster::Living(int rank) const {
  const ProcessPtr p = processes_[static_cast<size_t>(rank)];
  return p && p->alive && !p->frozen ? p : nullptr;
}

void Cluster::NoteLoss(int rank, int times) { losses_[rank] += times; }

// A process that a supervisor is late to bring costs its rank all the respawns it has: nobody goes on waiting for it.
void Cluster::NoteLate(int rank) { NoteLoss(rank, plan_.policy.can_spawn ? 1 : 1 + plan_.policy.max_respawns); }

// Each disturbance is short enough to be borne alone; two may add up.
void Cluster::NoteDisturbed(int rank) {
  if (++disturbed_[rank] > 1) NoteLoss(rank);
}

void Cluster::Strike(Fault& fault) {
  if (fault.fired || Over()) return;
  const ProcessPtr p = Living(fault.plan.rank);
  const Phase phase = core_->phase();
  const std::string where = p ? std::string(TrainerAtName(p->at)) : "gone";
  const PlannedFault plan = fault.plan;
  // Marked first: what it sets off may come back here.
  fault.fired = true;
  Log("!! " + plan.ToString() + " (" + where + ")");
  const bool done = StrikeNodes(plan) || StrikeProcess(plan, p) || StrikeTrainer(plan, p) ||
                    StrikeReplacement(plan, p) || StrikeLink(plan, p);
  if (!done) {
    Log("   ... finds nothing to strike");
    fault.fired = false;
    return;
  }
  last_progress_ = Now();
  ++outcome_.struck[{phase, plan.type}];
  if (!ever_running_) start_disturbed_ = true;
}

bool Cluster::StrikeProcess(const PlannedFault& fault, ProcessPtr p) {
  switch (fault.type) {
    case FaultType::kKill:
    case FaultType::kExit:
      if (!p) return false;
      NoteLoss(fault.rank);
      Die(p, fault.type == FaultType::kKill ? "killed by SIGKILL" : "exited with code 3");
      return true;
    case FaultType::kFreeze:  // for good
      if (!p) return false;
      NoteLate(fault.rank);
      if (!plan_.policy.can_spawn) In(Between(5'000'000, 8'000'000), [this, p] { Die(p, "killed by its supervisor"); });
      Freeze(p, std::nullopt);
      return true;
    case FaultType::kPause:
      if (!p) return false;
      fault.lasting ? NoteLate(fault.rank) : NoteDisturbed(fault.rank);
      Freeze(p, fault.lasting ? Between(1'000'000, 5'000'000) : Between(20'000, 500'000));
      return true;
    case FaultType::kNodeLost:
      return LoseNode(fault.rank);
    case FaultType::kGroupLost:
      return LoseGroup(fault.rank);
    case FaultType::kSlowRank: {
      if (!p) return false;
      NoteDisturbed(fault.rank);
      p->slow = 2 + fault.count / 2;
      For(p, Between(500'000, 3'000'000), [p] { p->slow = 1; });
      return true;
    }
    case FaultType::kControllerKilled:
    case FaultType::kControllerFrozen:
      return LoseController(fault.type == FaultType::kControllerFrozen);
    case FaultType::kSave:
      Feed(OperatorSave{});
      return true;
    case FaultType::kStop:
      stop_asked_ = true;
      Feed(OperatorStop{});
      return true;
    default:
      return false;
  }
}

bool Cluster::LoseNode(int rank) {
  if (!launchers_.empty()) return false;
  std::vector<ProcessPtr> lost;
  for (const ProcessPtr p : processes_)
    if (p && p->alive && plan_.NodeOf(p->rank.value()) == plan_.NodeOf(rank)) lost.push_back(p);
  for (const ProcessPtr p : lost) {
    NoteLoss(p->rank.value());
    Vanish(p);
  }
  return !lost.empty();
}

bool Cluster::StrikeTrainer(const PlannedFault& fault, ProcessPtr p) {
  if (fault.type == FaultType::kSourceLost) return StrikeSource();
  if (!p) return false;
  switch (fault.type) {
    case FaultType::kThrow:
      if (!p->core) return false;
      p->throw_next = true;
      return true;
    case FaultType::kThrowInUpdate:
      if (!p->core) return false;
      NoteLoss(fault.rank);
      p->throw_in_update = true;
      return true;
    case FaultType::kHang:
      return Hang(fault, p);
    case FaultType::kUceLow:
    case FaultType::kUceHigh:
      if (!p->core || p->at == TrainerAt::kBoot) return false;
      NoteLoss(fault.rank);
      Damage(p, fault.type == FaultType::kUceLow);
      return true;
    case FaultType::kCommError:
      if (p->group.value() == 0) return false;
      BreakGroup(p->group);
      return true;
    case FaultType::kHandlerFails:
      NoteLoss(fault.rank);
      p->failing_handlers = fault.count;
      return true;
    case FaultType::kHandlerHangs:
      NoteLoss(fault.rank);
      p->hanging_handlers = fault.count;
      return true;
    case FaultType::kHandlerNonsense:
      NoteLoss(fault.rank);
      p->nonsense_handlers = fault.count;
      return true;
    case FaultType::kBitFlip:  // in what its replacement will receive
      flips_left_ += fault.count;
      NoteLoss(fault.rank, 1 + fault.count / 2);
      Die(p, "killed by SIGKILL");
      return true;
    case FaultType::kStateFlip:
      return FlipState(p);
    case FaultType::kSilentFlip:
      return StrikeSilently(p);
    default:
      return false;
  }
}

// Its own work stands still: whatever it waits for does not come, or comes when the step is stopped.
bool Cluster::Hang(const PlannedFault& fault, ProcessPtr p) {
  if (p->at != TrainerAt::kForward && p->at != TrainerAt::kUpdate) return false;
  // One that a stop ends does not begin under a stop.
  if (!fault.lasting && Word(p).locked) return false;
  fault.lasting ? NoteLoss(fault.rank) : NoteDisturbed(fault.rank);
  p->hung = true;
  p->hung_for_good = fault.lasting;
  ++p->activity;  // its timer is void
  return true;
}

// Whoever is sending dies.
bool Cluster::StrikeSource() {
  const auto session = repairs_.find(core_->generation());
  if (session == repairs_.end()) return false;
  for (const Transfer& transfer : session->second.transfers) {
    const ProcessPtr source = transfer.source;
    if (transfer.done || !source || !source->alive) continue;
    NoteLoss(source->rank.value());
    Die(source, "killed by SIGKILL");
    return true;
  }
  return false;
}

// A bit of a copy that nothing had touched, where its partners' were not touched either: VERIFY sees that they differ,
// and nothing tells which is right. (With a repaired partner the flipped copy would be taken for the right one.)
bool Cluster::StrikeSilently(ProcessPtr p) {
  if (!p->core || core_->phase() != Phase::kVerify || p->state.shards.empty() || p->silent_bit) return false;
  std::set<Rank> involved{p->rank};
  for (const Shard& shard : p->state.shards)
    for (Rank holder : replicas_.Holders(shard.layout, p->rank)) involved.insert(holder);
  for (Rank rank : involved)
    if (core_->members()[static_cast<size_t>(rank.value())].needs_repair) return false;
  for (Rank rank : involved) NoteLoss(rank.value());
  p->silent_bit = 1ull << (p->rank.value() % 64);  // no two ranks' alike
  p->state.shards.front().tensors[0].value ^= p->silent_bit;
  p->flipped = true;
  return true;
}

// Where another fault ends a VERIFY before the digests are compared, nothing in the control plane can know of a bit
// that flipped meanwhile: the fault is taken back, since no promise covers it.
void Cluster::TakeBackFlips() {
  for (const ProcessPtr p : processes_) {
    if (!p || !p->silent_bit || core_->members()[static_cast<size_t>(p->rank.value())].needs_repair) continue;
    p->state.shards.front().tensors[0].value ^= std::exchange(p->silent_bit, 0);
    p->flipped = false;
  }
}

bool Cluster::StrikeReplacement(const PlannedFault& fault, ProcessPtr p) {
  std::map<int, int>* planned = fault.type == FaultType::kBadReplacement    ? &bad_replacements_
                                : fault.type == FaultType::kSlowReplacement ? &slow_replacements_
                                : fault.type == FaultType::kFastReplacement ? &fast_replacements_
                                                                            : nullptr;
  if (!planned) return false;
  (*planned)[fault.rank] += fault.type == FaultType::kSlowReplacement ? 1 : fault.count;
  if (!p) return true;
  NoteLoss(fault.rank);
  Die(p, "killed by SIGKILL");
  return true;
}

void Cluster::Damage(ProcessPtr p, bool low) {
  FaultReport report{.kind = low ? FaultKind::kMemoryLow : FaultKind::kMemoryHigh,
                     .text = "double bit error",
                     .step = kintsugi::Step(p->begun),
                     .since = Now()};
  p->damaged = true;
  Mark(p, core::StateMark::kWriting);
  p->received.clear();
  if (low) {
    Shard& shard = p->state.shards.front();
    const auto i = static_cast<size_t>(random_.Below(kTensorsPerLayout));
    shard.tensors[i].value = Mix(shard.tensors[i].value, 0xBADBAD);
    report.damaged_keys = {"l" + std::to_string(shard.layout) + "t" + std::to_string(i)};
  } else {
    for (Shard& shard : p->state.shards)
      for (Tensor& tensor : shard.tensors) tensor.value = Mix(tensor.value, 0xBADBAD);
  }
  if (p->at == TrainerAt::kUpdate) {
    p->damaged = false;  // met at once
    report.text += " in the update";
    return TearUpdate(p, std::move(report));
  }
  StepAgent(p, FaultSignal{std::move(report)});
}

// The trainer's next use of damaged memory ends its step: nothing computed with it reaches another rank.
bool Cluster::TakeDamage(ProcessPtr p) {
  if (!std::exchange(p->damaged, false)) return false;
  Park(p, TrainerParked::Outcome::kInterrupted);
  return true;
}

}  // namespace kintsugi::sim
