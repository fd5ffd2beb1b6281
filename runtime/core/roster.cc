#include "runtime/core/roster.h"

#include <algorithm>
#include <utility>

namespace kintsugi::core {

Step Roster::newest_begun() const {
  Step newest;
  for (const Member& member : *this) newest = std::max(newest, member.begun);
  return newest;
}

std::vector<Rank> Roster::Where(bool (*which)(const Member&)) const {
  std::vector<Rank> ranks;
  for (Rank rank : crew_.ranks())
    if (which(At(rank))) ranks.push_back(rank);
  return ranks;
}

void Roster::Change(Crew crew) {
  KINTSUGI_CHECK(counts_.waiting == 0, "the crew changes while ranks are waited for");
  KINTSUGI_CHECK(static_cast<size_t>(crew.seats()) == members_.size(),
                 "a crew of " + std::to_string(crew.seats()) + " seats in a world of " + std::to_string(seats()));
  crew.CheckInvariants();
  crew_ = std::move(crew);
  ever_changed_ = true;
  for (size_t r = 0; r < members_.size(); ++r) {
    const bool takes_part = crew_.Has(Rank(static_cast<int32_t>(r)));
    if (members_[r].takes_part != takes_part)
      Recounted(members_[r], [&] { members_[r].takes_part.value_ = takes_part; });
  }
}

void Roster::SetLife(Member& member, Life life) {
  Recounted(member, [&] { member.life.value_ = life; });
}

void Roster::SetConnected(Member& member, TimePoint now) {
  if (member.lost()) returned_at_ = now;
  Recounted(member, [&] { member.connected.value_ = true; });
}

void Roster::SetClosed(Member& member) {
  Recounted(member, [&] { member.connected.value_ = false; });
}

void Roster::SetWaiting(Member& member, bool waiting) {
  Recounted(member, [&] { member.waiting.value_ = waiting; });
  if (!waiting) member.order.reset();
}

void Roster::StopWaiting() {
  Counts counted;
  for (Member& member : members_) {
    counted.Add(member, 1);
    if (!member.waiting) continue;  // then it has no order either
    member.waiting.value_ = false;
    member.order.reset();
  }
  CheckCounts(counted);
  counts_.waiting = 0;
}

void Roster::Recount() const {
  Counts counted;
  for (const Member& member : members_) {
    counted.Add(member, 1);
    KINTSUGI_CHECK(member.waiting || !member.order,
                   "a rank that is not waited for has an order that would be repeated");
  }
  CheckCounts(counted);
}

void Roster::Check() const {
  Recount();
  for (size_t r = 0; r < members_.size(); ++r) {
    const Member& member = members_[r];
    const auto rank = [r] { return "rank " + std::to_string(r); };
    KINTSUGI_CHECK(!member.waiting || member.life == Life::kReady, rank() + " is waited for, and is not there");
    KINTSUGI_CHECK(!member.waiting || member.takes_part, rank() + " is waited for, and takes no part");
    KINTSUGI_CHECK(member.takes_part == crew_.Has(Rank(static_cast<int32_t>(r))),
                   rank() + " takes part, or does not, against what the crew says");
    KINTSUGI_CHECK(member.life != Life::kDead || (!member.connected && !member.parked),
                   rank() + " is dead, and counts as connected or parked");
    KINTSUGI_CHECK(!member.unconfirmed || *member.unconfirmed <= member.incarnation,
                   rank() + " has given up a life that it did not have yet");
    member.trust.Check();
  }
}

void Roster::CheckCounts(const Counts& counted) const {
  const auto same = [](const char* what, int kept, int found) {
    KINTSUGI_CHECK(kept == found,
                   std::string(what) + " ranks: kept " + std::to_string(kept) + ", counted " + std::to_string(found));
  };
  same("waiting", counts_.waiting, counted.waiting);
  same("ready", counts_.ready, counted.ready);
  same("lost", counts_.lost, counted.lost);
  same("unresumed", counts_.unresumed, counted.unresumed);
}

}  // namespace kintsugi::core
