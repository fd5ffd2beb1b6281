#include "runtime/core/node_return.h"

#include "runtime/base/check.h"

namespace kintsugi::core {

std::vector<ReturnAction> CompareLives(const std::vector<Member>& members, const RankBlock& block,
                                       const LivesThere& lives, const std::map<Rank, Incarnation>& to_spawn) {
  KINTSUGI_CHECK(block.first.value() >= 0 && block.ranks >= 0 &&
                     static_cast<size_t>(block.first.value() + block.ranks) <= members.size(),
                 "a node has ranks outside the world, from " + block.first.ToString() + " on");
  using What = ReturnAction::What;
  std::vector<ReturnAction> steps;
  for (int r = block.first.value(); r < block.first.value() + block.ranks; ++r) {
    const Rank rank(r);
    const Member& member = members[static_cast<size_t>(r)];
    const auto found = lives.find(rank);
    const bool there = found != lives.end();
    const bool runs = there && found->second == member.incarnation;
    const bool expected = (member.life == Life::kReady || member.life == Life::kStarting) && !to_spawn.count(rank);
    if (there && !(runs && expected))
      steps.push_back({What::kEnd, rank, found->second});
    else if (member.unconfirmed)
      steps.push_back({What::kHadEnded, rank, *member.unconfirmed});
    if (expected && !runs) steps.push_back({there ? What::kNeverBegan : What::kEndedAway, rank, member.incarnation});
  }
  return steps;
}

std::vector<FoundLife> FindLives(const RankBlock& block, const LivesThere& lives) {
  std::vector<FoundLife> found;
  for (int r = block.first.value(); r < block.first.value() + block.ranks; ++r) {
    const auto life = lives.find(Rank(r));
    found.push_back({Rank(r), life == lives.end() ? std::nullopt : std::optional(life->second)});
  }
  return found;
}

}  // namespace kintsugi::core
