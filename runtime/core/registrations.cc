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
  for (Rank rank : members.ranks()) {
    if (members.At(rank).registered) continue;
    for (int layout : layouts) (*claims)[rank].emplace(layout, GroupClaim{{rank}, 1});
  }
}

// To those that take part. Who registered while more of them did, or fewer, then claims the same.
Status Narrow(const Crew& crew, Claims* claims) {
  std::erase_if(*claims, [&](const auto& of) { return !crew.Has(of.first); });
  for (auto& [rank, layouts] : *claims)
    for (auto& [layout, claim] : layouts) {
      const std::optional<GroupClaim> within = ClaimWithin(claim, crew);
      if (!within)
        return {StatusCode::kFailedPrecondition, "layout " + std::to_string(layout) +
                                                     " is cut over the ranks of rank " + rank.ToString() +
                                                     "'s data-parallel group: among " + std::to_string(crew.size()) +
                                                     " ranks its bytes would have to move"};
      claim = *within;
    }
  return Status::Ok();
}

// Who registered while fewer took part claims what is left of a claim that those make who came since: it is theirs, too.
void Widen(const Crew& crew, Claims* claims) {
  const Claims said = *claims;
  for (const auto& [rank, layouts] : said)
    for (const auto& [layout, claim] : layouts) {
      for (Rank member : claim.ranks) {
        const auto its = member == rank || !crew.Has(member) ? claims->end() : claims->find(member);
        if (its == claims->end() || !its->second.count(layout)) continue;
        GroupClaim& narrow = its->second.at(layout);
        if (narrow.ranks.size() >= claim.ranks.size()) continue;
        const Result<Crew> before = Crew::Of(crew.seats(), narrow.ranks);
        if (!narrow.ranks.empty() && before.ok() && ClaimWithin(claim, *before) == narrow) narrow = claim;
      }
    }
}

const RegistrySummary& Own(const Member& member) { return member.registry; }
const RegistrySummary& Next(const Member& member) { return member.next ? member.next->registry : member.registry; }

// Holders of one shard registered the same.
Status CompareHolders(const ReplicaMap& replicas, const Roster& members,
                      const RegistrySummary& (*registry)(const Member&) = Own) {
  for (const ReplicaMap::Shard& shard : replicas.shards())
    for (Rank holder : shard.holders) {
      const Rank first = shard.holders.front();
      if (!members.At(holder).registered || !members.At(first).registered)
        continue;  // lost with the controller before this one
      KINTSUGI_RETURN_IF_ERROR(
          CompareReplicas(shard.layout, first, registry(members.At(first)), holder, registry(members.At(holder))));
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
  member.offer = ready.offer;
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

Result<ReplicaMap> Registrations::MapOf(const Roster& members, const Crew& crew, bool claims_for_lost) const {
  Claims claims;
  for (Rank rank : members.ranks()) claims[rank] = members.At(rank).layouts;
  if (claims_for_lost) ClaimForLost(members, &claims);
  for (Rank rank : crew.ranks())
    if (!members.crew().Has(rank)) claims[rank] = members.At(rank).layouts;
  if (!crew.whole() || members.ever_changed()) {
    KINTSUGI_RETURN_IF_ERROR(Narrow(crew, &claims));
    Widen(crew, &claims);
  }
  return ReplicaMap::Build(crew, claims);
}

Result<ReplicaMap> Registrations::MapOfNext(const Roster& members, const Crew& crew) const {
  Claims claims;
  for (Rank rank : crew.ranks()) {
    const Member& member = members.At(rank);
    if (!member.next && !member.trust.fresh())
      return Status(StatusCode::kInvalidArgument, "rank " + rank.ToString() + " has not said what it holds among " +
                                                      crew.ToString() +
                                                      ": its rebuild_group handler calls Agent::CutAnew");
    claims[rank] = member.next ? member.next->layouts : member.layouts;
  }
  KINTSUGI_ASSIGN_OR_RETURN(ReplicaMap map, ReplicaMap::Build(crew, claims));
  if (const Status same = CompareHolders(map, members, Next); !same.ok())
    return Status(StatusCode::kInvalidArgument, same.message());
  return map;
}

void Registrations::TakeNext(Roster& members, const Crew& crew, Generation generation) {
  for (Rank rank : crew.ranks()) {
    Member& member = members.At(rank);
    if (!member.next) continue;
    member.registry = std::move(member.next->registry);
    member.layouts = std::move(member.next->layouts);
    member.next.reset();
  }
  since_ = generation;
}

void Registrations::Use(ReplicaMap map) {
  KINTSUGI_CHECK(mapped_, "another crew's map is used before there was one");
  replicas_ = std::move(map);
  changed_ = true;
}

Status Registrations::Compare(const Roster& members, const Crew& crew, bool claims_for_lost) const {
  const Result<ReplicaMap> map = MapOf(members, crew, claims_for_lost);
  KINTSUGI_RETURN_IF_ERROR(map.status());
  const Status same = CompareHolders(map.value(), members);
  return same.ok() ? same : Status(StatusCode::kInvalidArgument, same.message());
}

Status Registrations::Map(const Roster& members, bool claims_for_lost) {
  Result<ReplicaMap> map = MapOf(members, members.crew(), claims_for_lost);
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
