#include "runtime/core/replica_map.h"

#include <algorithm>
#include <set>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

std::string Describe(const GroupClaim& claim) {
  std::string text = "ranks {";
  for (size_t i = 0; i < claim.ranks.size(); ++i) text += (i ? ", " : "") + claim.ranks[i].ToString();
  return text + "} with " + std::to_string(claim.replicas) + " replicas";
}

Status Bad(int layout, Rank rank, const GroupClaim& claim, const std::string& what) {
  return {StatusCode::kInvalidArgument,
          "layout " + std::to_string(layout) + ", rank " + rank.ToString() + ": " + Describe(claim) + ": " + what};
}

Status CheckClaim(const Crew& crew, int layout, Rank rank, const GroupClaim& claim) {
  const auto& ranks = claim.ranks;
  if (!std::is_sorted(ranks.begin(), ranks.end()) || std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end())
    return Bad(layout, rank, claim, "the group must be ascending, without repeats");
  if (!std::binary_search(ranks.begin(), ranks.end(), rank)) return Bad(layout, rank, claim, "the rank is not in it");
  if (!std::all_of(ranks.begin(), ranks.end(), [&](Rank each) { return crew.Has(each); }))
    return Bad(layout, rank, claim, "a rank is outside the world of " + std::to_string(crew.size()));
  if (claim.replicas < 1 || ranks.size() % static_cast<size_t>(claim.replicas) != 0)
    return Bad(layout, rank, claim,
               "the number of replicas must divide the group's size " + std::to_string(ranks.size()));
  return Status::Ok();
}

// All members of a group must claim the same. Each compares itself with the group's first member in full, and that one
// looks whether all others belong to its group: linear in the sum of the groups' sizes per rank, not in their square.
Status CheckAgreement(int layout, Rank rank, const GroupClaim& claim,
                      const std::map<Rank, std::map<int, GroupClaim>>& claims) {
  const auto claim_of = [&](Rank member) -> const GroupClaim* {
    const auto theirs = claims.find(member);
    if (theirs == claims.end()) return nullptr;
    const auto at = theirs->second.find(layout);
    return at == theirs->second.end() ? nullptr : &at->second;
  };
  const auto disagree = [&](Rank member, const GroupClaim* other) {
    return Status(StatusCode::kInvalidArgument, "layout " + std::to_string(layout) + ": rank " + rank.ToString() +
                                                    " says " + Describe(claim) + ", its member rank " +
                                                    member.ToString() + " says " +
                                                    (other ? Describe(*other) : std::string("nothing")));
  };
  const Rank first = claim.ranks.front();
  if (rank != first) {
    const GroupClaim* other = claim_of(first);
    return other && other->replicas == claim.replicas && other->ranks == claim.ranks ? Status::Ok()
                                                                                     : disagree(first, other);
  }
  for (Rank member : claim.ranks) {
    const GroupClaim* other = claim_of(member);
    if (!other || other->replicas != claim.replicas || other->ranks.size() != claim.ranks.size() ||
        other->ranks.front() != first)
      return disagree(member, other);
  }
  return Status::Ok();
}

}  // namespace

std::optional<GroupClaim> ClaimWithin(const GroupClaim& claim, const Crew& crew) {
  if (claim.replicas < 1 || claim.ranks.size() % static_cast<size_t>(claim.replicas) != 0) return claim;  // Build says why
  const size_t shards = claim.ranks.size() / static_cast<size_t>(claim.replicas);
  GroupClaim within;
  for (size_t i = 0; i < claim.ranks.size(); ++i) {
    if (!crew.Has(claim.ranks[i])) continue;
    if (i % shards != within.ranks.size() % shards) return std::nullopt;
    within.ranks.push_back(claim.ranks[i]);
  }
  if (within.ranks.empty() || within.ranks.size() % shards != 0) return std::nullopt;
  within.replicas = static_cast<int>(within.ranks.size() / shards);
  return within;
}

Result<ReplicaMap> ReplicaMap::Build(const Crew& crew, const std::map<Rank, std::map<int, GroupClaim>>& claims) {
  ReplicaMap map;
  map.shard_of_.resize(static_cast<size_t>(crew.seats()));
  const auto shards_of = [&](Rank rank) -> std::map<int, size_t>& {
    return map.shard_of_[static_cast<size_t>(rank.value())];
  };
  for (Rank rank : crew.ranks()) {
    const auto mine = claims.find(rank);
    if (mine == claims.end() || mine->second.empty()) {
      shards_of(rank)[0] = map.shards_.size();
      map.shards_.push_back({0, {rank}});
      continue;
    }
    for (const auto& [layout, claim] : mine->second) {
      KINTSUGI_RETURN_IF_ERROR(CheckClaim(crew, layout, rank, claim));
      KINTSUGI_RETURN_IF_ERROR(CheckAgreement(layout, rank, claim, claims));
      const size_t stride = claim.ranks.size() / static_cast<size_t>(claim.replicas);
      const size_t index =
          static_cast<size_t>(std::lower_bound(claim.ranks.begin(), claim.ranks.end(), rank) - claim.ranks.begin());
      std::vector<Rank> holders;
      for (size_t i = index % stride; i < claim.ranks.size(); i += stride) holders.push_back(claim.ranks[i]);
      if (holders.front() != rank) {
        shards_of(rank)[layout] = shards_of(holders.front())[layout];
        continue;
      }
      shards_of(rank)[layout] = map.shards_.size();
      map.shards_.push_back({layout, std::move(holders)});
    }
  }
  map.partners_.resize(map.shard_of_.size());
  for (Rank rank : crew.ranks()) {
    std::set<Rank> partners;
    for (const auto& [layout, shard] : shards_of(rank))
      for (Rank holder : map.shards_[shard].holders)
        if (holder != rank) partners.insert(holder);
    map.partners_[static_cast<size_t>(rank.value())].assign(partners.begin(), partners.end());
  }
  return map;
}

size_t ReplicaMap::IndexOf(Rank rank) const {
  const auto index = static_cast<size_t>(rank.value());
  KINTSUGI_CHECK(
      rank.value() >= 0 && index < shard_of_.size(),
      "rank " + rank.ToString() + " is asked for in a map of " + std::to_string(shard_of_.size()) + " ranks");
  return index;
}

std::vector<int> ReplicaMap::LayoutsOf(Rank rank) const {
  std::vector<int> layouts;
  for (const auto& [layout, shard] : ShardsOf(rank)) layouts.push_back(layout);
  return layouts;
}

const std::vector<Rank>& ReplicaMap::Holders(int layout, Rank rank) const {
  return shards_[ShardsOf(rank).at(layout)].holders;
}

}  // namespace kintsugi::core
