#include "runtime/sim/rot.h"

#include <algorithm>

namespace kintsugi::sim {

bool Rot::Flip(Process* p) {
  const bool computes = p->at == TrainerAt::kForward || p->at == TrainerAt::kGradients || p->at == TrainerAt::kGate ||
                        p->at == TrainerAt::kParamSync;
  if (!p->core || !computes || p->Word().locked || world_.bit.compared_at > 0) return false;
  const uint64_t every = world_.plan.policy.verify_every;
  const GateWord word = p->Word();
  const uint64_t committed = word.state == GateState::kCommitted ? word.step.value() : word.step.value() - 1;
  world_.bit.compared_at = (committed + every) / every * every;
  for (const Shard& shard : p->memory.state.shards)
    for (Rank holder : p->Holders(shard.layout)) world_.losses.Lose(holder.value());
  p->memory.state.shards.front().tensors[1].value ^= 1ull << (p->rank.value() % 64);
  p->memory.rotten = p->memory.tainted = true;
  return true;
}

// The rank's process, or what its launcher holds of the one before.
bool Rot::IsRotten(Rank rank) const {
  const Process* const p = world_.processes.Newest(rank);
  const auto left = world_.left.find(rank);
  return (p && p->memory.rotten) || (left != world_.left.end() && left->second.held && left->second.memory.rotten);
}

void Rot::Lose(const Process* p) {
  const auto& partners = world_.cuts.whole().partners[static_cast<size_t>(p->rank.value())];
  const bool differs =
      p->memory.rotten || IsRotten(p->rank) ||
      std::any_of(partners.begin(), partners.end(), [this](Rank partner) { return IsRotten(partner); });
  if (!differs || world_.bit.hidden) return;
  world_.bit.hidden = true;
  world_.Log("the flipped bit of rank " + p->rank.ToString() + " cannot be found any more");
}

}  // namespace kintsugi::sim
