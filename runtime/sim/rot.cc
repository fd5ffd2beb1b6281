// Bits that flip in committed state, and nobody says so. Comparisons of replicas (`verify_every`) must find them.
//
// A flipped bit spreads with the next gradients: from then on every rank computes with numbers that the undisturbed run
// does not have, and only the replicas of the flipped copy differ. The checkers follow that: until the next comparison
// ranks may hold tainted state, but none is saved, and nobody trains on beyond it.
#include <algorithm>

#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

bool Cluster::FlipState(ProcessPtr p) {
  const bool computes = p->at == TrainerAt::kForward || p->at == TrainerAt::kGradients || p->at == TrainerAt::kGate ||
                        p->at == TrainerAt::kParamSync;
  if (!p->core || !computes || Word(p).locked || compared_at_ > 0) return false;
  const uint64_t every = plan_.policy.verify_every;
  const GateWord word = Word(p);
  const uint64_t committed = word.state == GateState::kCommitted ? word.step.value() : word.step.value() - 1;
  compared_at_ = (committed + every) / every * every;
  for (const Shard& shard : p->state.shards)
    for (Rank holder : replicas_.Holders(shard.layout, p->rank)) NoteLoss(holder.value());
  p->state.shards.front().tensors[1].value ^= 1ull << (p->rank.value() % 64);
  p->rotten = p->tainted = true;
  return true;
}

// The rank's process, or what its launcher holds of the one before.
bool Cluster::IsRotten(Rank rank) const {
  const ProcessPtr p = Newest(rank);
  const auto left = left_.find(rank);
  return (p && p->rotten) || (left != left_.end() && left->second.held && left->second.rotten);
}

// The copy that differs is gone, or that from which it differs, or one is the other's now.
void Cluster::LoseRot(ProcessPtr p) {
  const auto& partners = partners_[static_cast<size_t>(p->rank.value())];
  const bool differs =
      p->rotten || IsRotten(p->rank) ||
      std::any_of(partners.begin(), partners.end(), [this](Rank partner) { return IsRotten(partner); });
  if (!differs || hidden_) return;
  hidden_ = true;
  Log("the flipped bit of rank " + p->rank.ToString() + " cannot be found any more");
}

// Whether what `p` holds at `step` cannot be held to the undisturbed run.
bool Cluster::CheckTaint(ProcessPtr p, uint64_t step) {
  if (hidden_) return true;
  if (p->tainted && step > compared_at_)
    Break(Promise::kBitIdentical, "rank " + p->rank.ToString() + " is at step " + std::to_string(step) +
                                      " with a bit that the comparison at step " + std::to_string(compared_at_) +
                                      " should have found");
  return p->tainted;
}

}  // namespace kintsugi::sim
