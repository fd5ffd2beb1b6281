// ReplicaMap: which ranks hold the same shard of state.
//
// Source of the rule: MindIO's layout. Per layout (optimizer type) the ranks are cut into groups of n; a group sorted
// ascending has r replicas with stride n/r: shard i of it sits on indices i, i + n/r, i + 2n/r, ...
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/core/crew.h"

namespace kintsugi::core {

// What one rank says of itself for one layout.
struct GroupClaim {
  std::vector<Rank> ranks;  // the rank's (data-parallel) group
  int replicas = 1;
  bool operator==(const GroupClaim&) const = default;
};

// What the claim says of those that take part, where each still holds what it held: the members of its group that are in
// the crew, with as many replicas as are left. Nothing: the shards that would be left do not stand as a claim says them,
// so that bytes would have to move.
std::optional<GroupClaim> ClaimWithin(const GroupClaim& claim, const Crew& crew);

class ReplicaMap {
 public:
  // claims[rank][layout], of those that take part. Every member of a group must claim the same group and replica count;
  // errors name the layout, both ranks and both values. A rank that claims nothing holds its state alone. Who takes no
  // part holds nothing.
  static Result<ReplicaMap> Build(const Crew& crew, const std::map<Rank, std::map<int, GroupClaim>>& claims);
  static Result<ReplicaMap> Build(int world_size, const std::map<Rank, std::map<int, GroupClaim>>& claims) {
    return Build(Crew(world_size), claims);
  }

  // Layouts in which `rank` holds state, ascending.
  std::vector<int> LayoutsOf(Rank rank) const;
  // Ranks that hold the same shard as `rank`, itself included, ascending.
  const std::vector<Rank>& Holders(int layout, Rank rank) const;
  // All other holders of any of the rank's shards, ascending.
  const std::vector<Rank>& Partners(Rank rank) const { return partners_[IndexOf(rank)]; }
  // Each distinct set of holders once.
  struct Shard {
    int layout = 0;
    std::vector<Rank> holders;
  };
  const std::vector<Shard>& shards() const { return shards_; }

 private:
  std::vector<Shard> shards_;
  // A rank outside of the map is a failed CHECK; before Build every one is.
  size_t IndexOf(Rank rank) const;
  const std::map<int, size_t>& ShardsOf(Rank rank) const { return shard_of_[IndexOf(rank)]; }

  // By rank.
  std::vector<std::map<int, size_t>> shard_of_;  // layout -> index into shards_
  std::vector<std::vector<Rank>> partners_;
};

}  // namespace kintsugi::core
