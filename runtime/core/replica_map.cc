#include "runtime/core/replica_map.h"

#include <algorithm>
#include <set>

namespace kintsugi::core {
namespace {

std::string Describe(const GroupClaim& claim) {
  std::string text = "ranks {";
  for (size_t i = 0; i < claim.ranks.size(); ++i) text += (i ? ", " : "") + claim.ranks[i].ToString();
  return text + "} with " + std::to_string(claim.replicas) + " replicas";
}

Status Bad(int layout, Rank rank, const GroupClaim& claim, const std::string& what) {
  return {StatusCode::kInvalidArgument, "layout " + std::to_string(layout) + ", rank " + rank.ToString() + ": " +
                                            Describe(claim) + ": " + what};
}

Status CheckClaim(int world_size, int layout, Rank rank, const GroupClaim& claim) {
  const auto& ranks = claim.ranks;
  if (!std::is_sorted(ranks.begin(), ranks.end()) || std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end())
    return Bad(layout, rank, claim, "the group must be ascending, without repeats");
  if (!std::binary_search(ranks.begin(), ranks.end(), rank)) return Bad(layout, rank, claim, "the rank is not in it");
  if (ranks.front().value() < 0 || ranks.back().value() >= world_size)
    return Bad(layout, rank, claim, "a rank is outside the world of " + std::to_string(world_size));
  if (claim.replicas < 1 || ranks.size() % static_cast<size_t>(claim.replicas) != 0)
    return Bad(layout, rank, claim,
               "the number of replicas must divide the group's size " + std::to_string(ranks.size()));
  return Status::Ok();
}

}  // namespace

Result<ReplicaMap> ReplicaMap::Build(int world_size, const std::map<Rank, std::map<int, GroupClaim>>& claims) {
  ReplicaMap map;
  for (int r = 0; r < world_size; ++r) {
    const Rank rank(r);
    const auto mine = claims.find(rank);
    if (mine == claims.end() || mine->second.empty()) {
      map.shard_of_[{0, rank}] = map.shards_.size();
      map.shards_.push_back({0, {rank}});
      continue;
    }
    for (const auto& [layout, claim] : mine->second) {
      KINTSUGI_RETURN_IF_ERROR(CheckClaim(world_size, layout, rank, claim));
      for (Rank member : claim.ranks) {
        const auto theirs = claims.find(member);
        const GroupClaim* other = nullptr;
        if (theirs != claims.end())
          if (const auto at = theirs->second.find(layout); at != theirs->second.end()) other = &at->second;
        if (!other || other->ranks != claim.ranks || other->replicas != claim.replicas)
          return Status(StatusCode::kInvalidArgument,
                        "layout " + std::to_string(layout) + ": rank " + rank.ToString() + " says " + Describe(claim) +
                            ", its member rank " + member.ToString() + " says " +
                            (other ? Describe(*other) : std::string("nothing")));
      }
      const size_t stride = claim.ranks.size() / static_cast<size_t>(claim.replicas);
      const size_t index =
          static_cast<size_t>(std::lower_bound(claim.ranks.begin(), claim.ranks.end(), rank) - claim.ranks.begin());
      std::vector<Rank> holders;
      for (size_t i = index % stride; i < claim.ranks.size(); i += stride) holders.push_back(claim.ranks[i]);
      if (holders.front() == rank) map.shards_.push_back({layout, holders});
      const auto known = map.shard_of_.find({layout, holders.front()});
      map.shard_of_[{layout, rank}] = holders.front() == rank ? map.shards_.size() - 1 : known->second;
    }
  }
  return map;
}

std::vector<int> ReplicaMap::LayoutsOf(Rank rank) const {
  std::vector<int> layouts;
  for (const auto& [key, shard] : shard_of_)
    if (key.second == rank) layouts.push_back(key.first);
  return layouts;
}

const std::vector<Rank>& ReplicaMap::Holders(int layout, Rank rank) const {
  return shards_[shard_of_.at({layout, rank})].holders;
}

std::vector<Rank> ReplicaMap::Partners(Rank rank) const {
  std::set<Rank> partners;
  for (int layout : LayoutsOf(rank))
    for (Rank holder : Holders(layout, rank))
      if (holder != rank) partners.insert(holder);
  return {partners.begin(), partners.end()};
}

}  // namespace kintsugi::core
