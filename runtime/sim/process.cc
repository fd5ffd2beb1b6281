#include "runtime/sim/process.h"

#include "runtime/core/hang_detector.h"

namespace kintsugi::sim {

const Object* Process::ObjectOf(Rank of, uint64_t step) const {
  if (of == rank) return memory.objects.Find(step);
  const auto found = memory.mirrored.find(of);
  return found == memory.mirrored.end() ? nullptr : found->second.Find(step);
}

TrainPhase Process::PagePhase() const {
  return at == TrainerAt::kGradients   ? TrainPhase::kGradientSync
         : at == TrainerAt::kParamSync ? TrainPhase::kParamSync
                                       : TrainPhase::kForward;
}

Progress Process::Place() const { return core::PlaceOf(PackProgress(begun, PagePhase()), Word()); }

Process& ProcessTable::Add(Rank rank, Incarnation incarnation, int node) {
  Process& added = all_.emplace_back();
  added.rank = rank;
  added.incarnation = incarnation;
  added.node = node;
  added.pid = 1000 + all_.size();
  added.word = GateWord::Pack(GateState::kCommitted, 0) | GateWord::kLockBit;
  newest_[static_cast<size_t>(rank.value())] = &added;
  on_[{node, rank.value()}] = &added;
  return added;
}

Process* ProcessTable::Living(Rank rank) {
  Process* const p = Newest(rank);
  return p && p->alive && !p->frozen ? p : nullptr;
}

Process* ProcessTable::NewestOn(int node, Rank rank) {
  return const_cast<Process*>(std::as_const(*this).NewestOn(node, rank));
}

const Process* ProcessTable::NewestOn(int node, Rank rank) const {
  const auto found = on_.find({node, rank.value()});
  return found == on_.end() ? nullptr : found->second;
}

std::vector<Process*> ProcessTable::On(int node) {
  std::vector<Process*> here;
  for (auto at = on_.lower_bound({node, 0}); at != on_.end() && at->first.first == node; ++at)
    here.push_back(at->second);
  return here;
}

}  // namespace kintsugi::sim
