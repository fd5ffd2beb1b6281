#include "runtime/core/replacements.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

std::vector<Rank> RanksFrom(Rank first, int ranks) {
  std::vector<Rank> all;
  for (int r = first.value(); r < first.value() + ranks; ++r) all.emplace_back(r);
  return all;
}

bool IsOneOf(Rank rank, const std::vector<Rank>& ranks) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

auto HoldersBeside(const std::vector<Rank>& holders, const std::vector<Rank>& ranks) {
  return std::count_if(holders.begin(), holders.end(), [&](Rank holder) { return !IsOneOf(holder, ranks); });
}

}  // namespace

// One more that is lost then leaves another. What a launcher holds stays on its host.
bool Replacements::AreKept(const std::vector<Rank>& ranks, bool drains) const {
  return std::all_of(ranks.begin(), ranks.end(), [&](Rank rank) {
    if (!drains && board_.policy.adopts && board_.At(rank).state_held) return true;
    const std::vector<int> layouts = board_.replicas().LayoutsOf(rank);
    return std::all_of(layouts.begin(), layouts.end(),
                       [&](int layout) { return HoldersBeside(board_.replicas().Holders(layout, rank), ranks) >= 2; });
  });
}

std::string Replacements::WhyNot(const std::vector<Rank>& ranks, bool drains) const {
  for (const Rank rank : ranks)
    if (!board_.members.Has(rank)) return "there is no rank " + rank.ToString();
  for (const Rank rank : ranks)
    if (!board_.At(rank).takes_part) return "rank " + rank.ToString() + " takes no part any more";
  if (board_.course.leaving) return "the run saves and leaves";
  if (board_.phase() != Phase::kRunning || board_.incident.open())
    return "the run is in " + std::string(PhaseName(board_.phase())) +
           (board_.incident.open() ? " after a fault" : "") + ": ask again once it trains";
  const bool saves = !board_.policy.save_directory.empty(), kept = saves || AreKept(ranks, drains);
  for (const Rank rank : ranks) {
    const Member& member = board_.At(rank);
    if (member.life != Life::kReady) return "rank " + rank.ToString() + " has no process yet";
    if (member.respawns >= board_.policy.max_respawns) return NoRespawnText(rank, member.start_failure);
    for (const int layout : board_.replicas().LayoutsOf(rank)) {
      const std::vector<Rank>& holders = board_.replicas().Holders(layout, rank);
      if (drains && saves) continue;  // where the node alone holds it, all go back to what is saved for this, and lose no step
      const auto other = std::find_if(holders.begin(), holders.end(), [&](Rank holder) { return !IsOneOf(holder, ranks); });
      if (other == holders.end())
        return "rank " + rank.ToString() + " holds state that no other rank holds" + (drains ? " outside of its node" : "") +
               ": a new process would not get it";
      if (!kept)
        return "rank " + other->ToString() + " alone holds the same state, nothing keeps it beyond rank " + rank.ToString() +
               "'s process, and no save directory is set: with --save-dir the run is saved first, with state in "
               "Agent::AllocateState its launcher keeps it";
    }
  }
  return "";
}

std::string Replacements::WhyNotDrained(Rank first, int ranks) const {
  if (first.value() < 0 || ranks < 1 || first.value() > board_.policy.world_size - ranks)
    return "there is no rank " + first.ToString();
  return WhyNot(RanksFrom(first, ranks), true);
}

void Replacements::Ask(Rank rank) {
  KINTSUGI_CHECK(WhyNot(rank).empty(), "a new process that is not to be had is asked for");
  if (Waits(rank)) return;
  asked_.push_back({.ranks = {rank},
                    .incarnations = {board_.At(rank).incarnation},
                    .until = board_.now() + board_.policy.step_timeout,
                    .text = "an operator asked for a new process of rank " + rank.ToString()});
}

void Replacements::AskToDrain(Rank first, int ranks) {
  KINTSUGI_CHECK(WhyNotDrained(first, ranks).empty(), "a node is drained whose ranks cannot go");
  const auto same = [&](const Request& request) { return request.drains && request.ranks.front() == first; };
  if (std::any_of(asked_.begin(), asked_.end(), same)) return;
  asked_.push_back({.ranks = RanksFrom(first, ranks),
                    .drains = true,
                    .until = board_.now() + board_.policy.step_timeout,
                    .text = "an operator drains the node of ranks " + first.ToString() + " to " +
                            std::to_string(first.value() + ranks - 1)});
}

bool Replacements::Waits(Rank rank) const {
  return std::any_of(asked_.begin(), asked_.end(),
                     [rank](const Request& request) { return IsOneOf(rank, request.ranks); });
}

Replacements::Request Replacements::Take() {
  KINTSUGI_CHECK(waits(), "nobody asked for a new process");
  Request next = std::move(asked_.front());
  asked_.erase(asked_.begin());
  return next;
}

void Replacements::ForgetMet() {
  std::erase_if(asked_, [this](const Request& request) {
    if (request.drains) return false;
    const Member& member = board_.At(request.ranks.front());
    return member.incarnation != request.incarnations.front() || member.life != Life::kReady;
  });
}

void Replacements::Moved(Rank first) {
  std::erase_if(asked_, [first](const Request& request) { return request.drains && request.ranks.front() == first; });
}

}  // namespace kintsugi::core
