// When a planned fault strikes and what it does.
#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

void Cluster::OnPhase(Phase phase) {
  const int nth = ++entered_[phase];
  for (PlannedFault& fault : plan_.faults)
    if (fault.in_phase == phase && fault.nth == nth && !fault.fired) In(fault.delay, [this, &fault] { Strike(fault); });
}

void Cluster::OnTrainerAt(const ProcessPtr& p) {
  for (PlannedFault& fault : plan_.faults) {
    if (fault.fired || fault.in_trainer != p->at || fault.rank != p->rank.value() || fault.step != p->begun) continue;
    fault.in_trainer.reset();  // once
    // An exception is thrown by the trainer itself, the rest strikes while it is on its way.
    if (fault.type == FaultType::kThrow || fault.type == FaultType::kThrowInUpdate)
      Strike(fault);
    else
      In(fault.delay, [this, &fault] { Strike(fault); });
  }
}

Cluster::ProcessPtr Cluster::Living(int rank) const {
  const auto found = processes_.find(Rank(rank));
  return found != processes_.end() && found->second->alive && !found->second->frozen ? found->second : nullptr;
}

void Cluster::Strike(PlannedFault& fault) {
  if (fault.fired || ended_) return;
  const ProcessPtr p = Living(fault.rank);
  const bool has_core = p && p->core;
  const auto fired = [&] {
    fault.fired = true;
    outcome_.struck.insert({fault.type, core_.phase()});
    if (!ever_running_) start_disturbed_ = true;
    Log("!! " + fault.ToString() + " (" + (p ? TrainerAtName(p->at) : "gone") + ")");
  };
  switch (fault.type) {
    case FaultType::kKill:
    case FaultType::kExit:
      if (!p) return;
      fired();
      NoteLoss(fault.rank);
      return Die(p, fault.type == FaultType::kKill ? "killed by SIGKILL" : "exited with code 3");
    case FaultType::kFreeze:
      if (!p) return;
      fired();
      NoteLoss(fault.rank);
      p->frozen = true;
      return;
    case FaultType::kThrow:
      if (!has_core) return;
      fired();
      p->throw_next = true;
      return;
    case FaultType::kThrowInUpdate:
      if (!has_core) return;
      fired();
      NoteLoss(fault.rank);
      p->throw_in_update = true;
      return;
    case FaultType::kUceLow:
    case FaultType::kUceHigh:
      if (!has_core || p->at == TrainerAt::kBoot) return;
      fired();
      NoteLoss(fault.rank);
      return Damage(p, fault);
    case FaultType::kCommError:
      if (!p || p->group.value() == 0) return;
      fired();
      return BreakGroup(p->group);
    case FaultType::kShortGap:
    case FaultType::kLongGap:
      if (!has_core || !p->link) return;
      fired();
      CutLink(p);
      if (fault.type == FaultType::kLongGap) NoteLoss(fault.rank);
      return For(p, fault.type == FaultType::kShortGap ? Between(3000, 900000) : Between(1500000, 4000000), [this, p] {
        if (!p->link) Connect(p);
      });
    case FaultType::kBadReplacement:
      fired();
      bad_replacements_[fault.rank] += fault.count;
      if (!p) return;
      NoteLoss(fault.rank);
      return Die(p, "killed by SIGKILL");
    case FaultType::kHandlerFails:
      if (!p) return;
      fired();
      NoteLoss(fault.rank);
      p->failing_handlers = fault.count;
      return;
    case FaultType::kHandlerHangs:
      if (!p) return;
      fired();
      NoteLoss(fault.rank);
      p->hanging_handlers = fault.count;
      return;
    case FaultType::kBitFlip:
      fired();
      flips_left_ += fault.count;
      if (!p) return;
      NoteLoss(fault.rank, 1 + fault.count / 2);
      return Die(p, "killed by SIGKILL");
    case FaultType::kSave:
      fired();
      return Feed(OperatorSave{});
    case FaultType::kStop:
      fired();
      stop_asked_ = true;
      return Feed(OperatorStop{});
  }
}

void Cluster::Damage(const ProcessPtr& p, const PlannedFault& fault) {
  const bool low = fault.type == FaultType::kUceLow;
  FaultReport report{.kind = low ? FaultKind::kMemoryLow : FaultKind::kMemoryHigh,
                     .text = "double bit error",
                     .step = kintsugi::Step(p->begun),
                     .since = now_};
  p->damaged = true;
  if (low) {
    auto& [layout, tensors] = *p->state.tensors.begin();
    const auto i = static_cast<size_t>(random_.Below(kTensorsPerLayout));
    tensors[i] = Mix(tensors[i], 0xBADBAD);
    report.damaged_keys = {"l" + std::to_string(layout) + "t" + std::to_string(i)};
  } else {
    for (auto& [layout, tensors] : p->state.tensors)
      for (uint64_t& value : tensors) value = Mix(value, 0xBADBAD);
  }
  if (p->at == TrainerAt::kUpdate) {
    p->damaged = false;  // met at once
    report.text += " in the update";
    return TearUpdate(p, std::move(report));
  }
  StepAgent(p, FaultSignal{std::move(report)});
}

// The trainer's next use of damaged memory ends its step: nothing computed with it reaches another rank.
bool Cluster::TakeDamage(const ProcessPtr& p) {
  if (!std::exchange(p->damaged, false)) return false;
  Park(p, TrainerParked::Outcome::kInterrupted);
  return true;
}

}  // namespace kintsugi::sim
