#include "runtime/core/replacements.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::core {

// One more that is lost then leaves another.
bool Replacements::IsKept(Rank rank) const {
  if (board_.policy.adopts && board_.At(rank).state_held) return true;
  const std::vector<int> layouts = board_.replicas().LayoutsOf(rank);
  return std::all_of(layouts.begin(), layouts.end(),
                     [&](int layout) { return board_.replicas().Holders(layout, rank).size() > 2; });
}

std::string Replacements::WhyNot(Rank rank) const {
  if (!board_.members.Has(rank)) return "there is no rank " + rank.ToString();
  if (board_.course.leaving) return "the run saves and leaves";
  if (board_.phase() != Phase::kRunning || board_.incident.open())
    return "the run is in " + std::string(PhaseName(board_.phase())) +
           (board_.incident.open() ? " after a fault" : "") + ": ask again once it trains";
  const Member& member = board_.At(rank);
  if (member.life != Life::kReady) return "rank " + rank.ToString() + " has no process yet";
  if (member.respawns >= board_.policy.max_respawns) return NoRespawnText(rank, member.start_failure);
  for (const int layout : board_.replicas().LayoutsOf(rank)) {
    const std::vector<Rank>& holders = board_.replicas().Holders(layout, rank);
    if (holders.size() < 2)
      return "rank " + rank.ToString() + " holds state that no other rank holds: a new process would not get it";
    if (!IsKept(rank) && board_.policy.save_directory.empty())
      return "rank " + (holders.front() == rank ? holders.back() : holders.front()).ToString() +
             " alone holds the same state, nothing keeps it beyond rank " + rank.ToString() +
             "'s process, and no save directory is set: with --save-dir the run is saved first, with state in "
             "Agent::AllocateState its launcher keeps it";
  }
  return "";
}

void Replacements::Ask(Rank rank) {
  KINTSUGI_CHECK(WhyNot(rank).empty(), "a new process that is not to be had is asked for");
  if (!Waits(rank)) asked_.push_back({rank, board_.At(rank).incarnation, board_.now() + board_.policy.step_timeout});
}

bool Replacements::Waits(Rank rank) const {
  return std::any_of(asked_.begin(), asked_.end(), [rank](const Request& request) { return request.rank == rank; });
}

Rank Replacements::Take() {
  KINTSUGI_CHECK(waits(), "nobody asked for a new process");
  const Rank rank = asked_.front().rank;
  asked_.erase(asked_.begin());
  return rank;
}

void Replacements::ForgetMet() {
  std::erase_if(asked_, [this](const Request& request) {
    return board_.At(request.rank).incarnation != request.incarnation || board_.At(request.rank).life != Life::kReady;
  });
}

}  // namespace kintsugi::core
