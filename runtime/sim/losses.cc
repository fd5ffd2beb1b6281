#include "runtime/sim/losses.h"

#include <algorithm>

namespace kintsugi::sim {

void Losses::AllLate() {
  for (int r = 0; r < policy_.world_size; ++r) Late(r);
}

void Losses::Disturb(int rank) {
  if (++disturbed_[rank] > 1) Lose(rank);
}

bool Losses::OneLost(int times) const {
  return std::any_of(losses_.begin(), losses_.end(), [&](const auto& loss) {
    return loss.second + static_cast<int>(asked_.count(loss.first)) >= times;
  });
}

bool Losses::MajorityAtRisk() const {
  return policy_.needs_consent && 2 * losses_.size() >= static_cast<size_t>(policy_.world_size);
}

bool Losses::ShardAtRisk(const ReplicaMap& replicas) const {
  return std::any_of(replicas.shards().begin(), replicas.shards().end(), [this](const auto& shard) {
    return std::all_of(shard.holders.begin(), shard.holders.end(), [this](Rank r) { return losses_.count(r.value()) > 0; });
  });
}

}  // namespace kintsugi::sim
