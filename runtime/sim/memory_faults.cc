#include "runtime/sim/memory_faults.h"

#include <set>

namespace kintsugi::sim {

bool MemoryFaults::Strike(const PlannedFault& fault, Process* p) {
  if (!p) return false;
  switch (fault.type) {
    case FaultType::kUceLow:
    case FaultType::kUceHigh:
      if (!p->core || p->at == TrainerAt::kBoot) return false;
      world_.losses.Lose(fault.rank);
      Damage(p, fault.type == FaultType::kUceLow);
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

void MemoryFaults::OnPhase(Phase phase) {
  if (phase == Phase::kLock) TakeBackFlips();
  if (phase == Phase::kRollback)  // digests agree: what had flipped is repaired
    for (Process* const p : world_.processes.newest())
      if (p) p->memory.silent_bit = 0;
}

// A bit of a copy that nothing had touched, where its partners' were not touched either: VERIFY sees that they differ,
// and nothing tells which is right. (With a repaired partner the flipped copy would be taken for the right one.)
bool MemoryFaults::StrikeSilently(Process* p) {
  if (!p->core || world_.core().phase() != Phase::kVerify || p->Working().shards.empty() || p->memory.silent_bit)
    return false;
  // Who leaves is not compared: nothing could know.
  if (!p->InCrew(p->rank) || !world_.core().members()[static_cast<size_t>(p->rank.value())].takes_part) return false;
  std::set<Rank> involved{p->rank};
  for (const Shard& shard : p->Working().shards) {
    const size_t alone = involved.size();
    for (Rank holder : p->WorkingCut().replicas.Holders(shard.layout, p->rank))
      if (p->InCrew(holder)) involved.insert(holder);
    if (involved.size() == alone && alone == 1) return false;  // the last copy: nothing is left to compare it with
  }
  for (Rank rank : involved)
    if (world_.core().members()[static_cast<size_t>(rank.value())].trust.needs_repair()) return false;
  for (Rank rank : involved) world_.losses.Lose(rank.value());
  const uint64_t bit = 1ull << (p->rank.value() % 64);  // no two ranks' alike
  p->Working().shards.front().tensors[0].value ^= bit;
  if (p->next) return true;  // which goes, all of it, unless all agree
  p->memory.silent_bit = bit;
  p->flipped = true;
  return true;
}

// Where another fault ends a VERIFY before the digests are compared, nothing in the control plane can know of a bit
// that flipped meanwhile: the fault is taken back, since no promise covers it.
void MemoryFaults::TakeBackFlips() {
  for (Process* const p : world_.processes.newest()) {
    if (!p || !p->memory.silent_bit ||
        world_.core().members()[static_cast<size_t>(p->rank.value())].trust.needs_repair())
      continue;
    p->memory.state.shards.front().tensors[0].value ^= std::exchange(p->memory.silent_bit, 0);
    p->flipped = false;
  }
}

void MemoryFaults::Damage(Process* p, bool low) {
  FaultReport report{.kind = low ? FaultKind::kMemoryLow : FaultKind::kMemoryHigh,
                     .text = "double bit error",
                     .step = kintsugi::Step(p->begun),
                     .since = world_.Now()};
  p->damaged = true;
  held_.Mark(p, core::StateMark::kWriting);
  p->received.clear();
  if (low) {
    const int layout = p->memory.state.shards.front().layout;
    const auto i = static_cast<size_t>(world_.random.Below(kTensorsPerLayout));
    p->memory.state.SpoilTensor(layout, i, 0xBADBAD);
    report.damaged_keys = {KeyOf(layout, i)};
  } else {
    for (Shard& shard : p->memory.state.shards)
      for (Tensor& tensor : shard.tensors) tensor.value = Mix(tensor.value, 0xBADBAD);
  }
  if (p->at == TrainerAt::kUpdate) {
    p->damaged = false;  // met at once
    report.text += " in the update";
    return trainers_.TearUpdate(p, std::move(report));
  }
  agents_.Step(p, FaultSignal{std::move(report)});
}

}  // namespace kintsugi::sim
