#include "runtime/launcher/node/local_block.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {

LocalBlock::LocalBlock(NodeState& state, WorkerPool& pool) : state_(state), pool_(pool), block_(BlockHere()) {
  state_.election.SetHasRanks(has_ranks());
}

std::optional<int> LocalBlock::BlockHere() const {
  return state_.self.is_node() ? placement_.BlockOf(state_.index(), state_.self.shape().nodes) : std::nullopt;
}

bool LocalBlock::takes_part() const {
  const std::vector<Rank>& crew = state_.pulse.so_far.crew;
  return has_ranks() &&
         (crew.empty() || std::any_of(crew.begin(), crew.end(), [this](Rank rank) { return Has(rank); }));
}

bool LocalBlock::Learn(const core::Placement& placement) {
  if (!placement_.Learn(placement)) return false;
  state_.election.SetPlacement(placement_);
  // Ranks that another node has are nothing to save: with them alone it leads no part.
  state_.election.SetHasRanks(has_ranks() && BlockHere());
  return true;
}

void LocalBlock::Take(const core::Placement& placement) {
  Learn(placement);
  if (placement.version() != placement_.version() || !state_.self.is_node()) return;  // a newer one is known here
  const std::optional<int> before = std::exchange(block_, BlockHere());
  state_.election.SetHasRanks(has_ranks());
  if (block_ == before) return;
  const int size = state_.self.local_ranks();
  const std::string ranks =
      !block_ ? "none" : std::to_string(*block_ * size) + " to " + std::to_string((*block_ + 1) * size - 1);
  state_.log->Write(LogLevel::kWarning,
                    LogLine(block_ ? "takes_over" : "is_spare", {{"node", state_.self.name()}, {"ranks", ranks}}));
  if (!state_.set_up) return;
  if (before) pool_.GiveBlockUp("another node has taken the rank over");
  if (block_) pool_.TakeBlock(*block_);
}

core::ElectionCore::LocalRanks LocalBlock::RanksHere() const {
  std::set<Rank> live;
  for (const WorkerPool::Life& life : pool_.Lives())
    if (!state_.fresh.IsFresh(life.rank, life.incarnation)) live.insert(life.rank);
  core::ElectionCore::LocalRanks ranks;
  ranks.newcomer = state_.newcomer.is_one();
  const std::optional<int> block = BlockHere();
  if (!block || block != block_ || !placement_.Counts(*block, state_.pulse.generation)) return ranks;
  const int size = state_.self.local_ranks();
  for (int r = *block * size; r < (*block + 1) * size; ++r)
    (live.count(Rank(r)) ? ranks.live : ranks.ended).push_back(Rank(r));
  KINTSUGI_CHECK(static_cast<int>(ranks.live.size() + ranks.ended.size()) == size,
                 "a node has more or fewer votes than ranks");
  return ranks;
}

}  // namespace kintsugi
