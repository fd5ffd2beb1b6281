#include "runtime/core/registrations.h"

#include <set>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

using Claims = std::map<Rank, std::map<int, GroupClaim>>;

// What ranks held that were lost with the controller before: the other members of their groups know. Where a whole
// group is lost nobody does; then each of its ranks counts as the only holder of something, so that nothing is taken
// for complete that may not be.
void ClaimForLost(const Roster& members, Claims* claims) {
  std::set<int> layouts;
  for (const Member& member : members)
    for (const auto& [layout, claim] : member.layouts) {
      layouts.insert(layout);
      for (Rank rank : claim.ranks)
        if (members.Has(rank) && !members.At(rank).registered) (*claims)[rank].emplace(layout, claim);
    }
  for (size_t r = 0; r < members.size(); ++r) {
    const Rank rank(static_cast<int32_t>(r));
    if (members[r].registered) continue;
    for (int layout : layouts) (*claims)[rank].emplace(layout, GroupClaim{{rank}, 1});
  }
}

// Holders of one shard registered the same.
Status CompareHolders(const ReplicaMap& replicas, const Roster& members) {
  for (const ReplicaMap::Shard& shard : replicas.shards())
    for (Rank holder : shard.holders) {
      const Rank first = shard.holders.front();
      if (!members.At(holder).registered || !members.At(first).registered)
        continue;  // lost with the controller before this one
      KINTSUGI_RETURN_IF_ERROR(
          CompareReplicas(shard.layout, first, members.At(first).registry, holder, members.At(holder).registry));
    }
  return Status::Ok();
}

}  // namespace

void Registrations::Take(Member& member, const Ready& ready) {
  RegistrySummary registry = ready.registry;
  gone_.TakeFrom(&registry);
  changed_ = changed_ || !(member.registry == registry && member.layouts == ready.layouts);
  member.registry = std::move(registry);
  member.layouts = ready.layouts;
  member.registered = true;
  member.state_held = ready.state_held;
}

bool Registrations::Remove(Member& member, const std::vector<std::string>& keys) {
  Unregistered said;
  said.Add(keys);
  said.TakeFrom(&member.registry);
  return gone_.Add(keys);
}

bool Registrations::IsNews(const std::string& warning) {
  return !warning.empty() && std::exchange(told_warning_, warning) != warning;
}

Status Registrations::Map(const Roster& members, bool claims_for_lost) {
  Claims claims;
  for (size_t r = 0; r < members.size(); ++r) claims[Rank(static_cast<int32_t>(r))] = members[r].layouts;
  if (claims_for_lost) ClaimForLost(members, &claims);
  Result<ReplicaMap> map = ReplicaMap::Build(static_cast<int>(members.size()), claims);
  KINTSUGI_RETURN_IF_ERROR(map.status());
  // What is held is still held as the survivors registered it.
  if (const Status same = CompareHolders(map.value(), members); !same.ok())
    return {StatusCode::kInvalidArgument, same.message()};
  replicas_ = std::move(map).value();
  mapped_ = true;
  changed_ = false;
  return Status::Ok();
}

}  // namespace kintsugi::core
