#include "runtime/sim/election_checker.h"

#include <algorithm>

namespace kintsugi::sim {

void ElectionChecker::ForgetPromises(int node) { promised_.erase(node); }

void ElectionChecker::CheckPromise(int node, int candidate, uint64_t term) {
  const auto [promise, first] = promised_[node].emplace(term, candidate);
  if (!first && promise->second != candidate)
    return sink_.Break(Promise::kOneDecider, "node " + std::to_string(node) + " promises term " + std::to_string(term) +
                                                 " to node " + std::to_string(candidate) + " and node " +
                                                 std::to_string(promise->second));
  auto& ranks = promised_ranks_[{candidate, term}];
  for (int r = 0; r < world_.plan.policy.world_size; ++r) {
    if (HolderOf(r) != node) continue;
    const Process* const p = world_.processes.NewestOn(node, Rank(r));
    if (bool& lives = ranks.emplace(r, false).first->second; p && p->alive && !HasSucceeded(*p)) lives = true;
  }
}

void ElectionChecker::CheckLead(int node, const core::ElectionCore::Lead& lead) {
  if (!lead.majority) return;
  const std::string who = "node " + std::to_string(node);
  const auto [led, first] = led_.emplace(lead.term, node);
  if (!first && led->second != node)
    return sink_.Break(Promise::kOneDecider, "term " + std::to_string(lead.term) + " is led by " + who + " and node " +
                                                 std::to_string(led->second));
  const auto& ranks = promised_ranks_[{node, lead.term}];
  if (const int weight = WeightOf(ranks); weight < 0)
    sink_.Break(Promise::kOneDecider, who + " leads term " + std::to_string(lead.term) + " with a weight of " +
                                          std::to_string(-weight - 1) + " of " + std::to_string(world_.size));
}

// Whose word counts for a rank. The process that has held the run's state last is the rank's; one that was begun
// elsewhere, and holds nothing yet, is none.
int ElectionChecker::HolderOf(int rank) const {
  int holder = world_.plan.NodeOf(rank);
  if (world_.plan.spare_nodes == 0) return holder;
  for (const Process& p : world_.processes.all())
    if (p.rank.value() == rank && p.core && p.core->standing() != core::Standing::kNew) holder = p.node;
  return holder;
}

// It holds nothing yet, and the process before it was in the run: whoever has heard of that one's end counts the rank as ended.
bool ElectionChecker::HasSucceeded(const Process& process) const {
  if (process.core && process.core->standing() != core::Standing::kNew) return false;
  const auto& all = world_.processes.all();
  return std::any_of(all.begin(), all.end(), [&](const Process& before) {
    return &before != &process && before.rank == process.rank && before.core &&
           before.core->standing() == core::Standing::kRunning;
  });
}

// Twice the ranks that live and consent, and those that have ended; where that is too little, it is given as -1 less.
int ElectionChecker::WeightOf(const std::map<int, bool>& ranks) const {
  const int world = world_.plan.policy.world_size;
  int weight = 0, lowest = world;
  for (int r = world - 1; r >= 0; --r) {
    const auto found = ranks.find(r);
    if (found != ranks.end()) weight += found->second ? 2 : 1;
    if (found == ranks.end() || found->second) lowest = r;
  }
  const bool has_lowest = lowest == world || ranks.count(lowest) > 0;
  return weight > world || (weight == world && has_lowest) ? weight : -weight - 1;
}

void ElectionChecker::CheckTermObeyed(int node, Term obeyed, Term term) {
  if (term < obeyed)
    sink_.Break(Promise::kOneDecider, "node " + std::to_string(node) + " obeys term " + std::to_string(term.number) +
                                          " and has obeyed term " + std::to_string(obeyed.number));
}

// Who consents to this generation: processes that have heard of it from this controller; and ranks that have ended. Of
// a rank whose new process holds nothing yet the one before has ended, and one that was never started can side with
// nobody.
std::map<int, bool> ElectionChecker::ConsentTo(Generation generation) const {
  std::map<int, bool> ranks;
  for (int r = 0; r < world_.plan.policy.world_size; ++r)
    if (!world_.processes.Newest(Rank(r))) ranks[r] = false;
  for (const Process* const p : world_.processes.newest()) {
    if (!p) continue;
    const bool consents = p->core && p->newest_term == world_.seat().term && p->core->generation() >= generation;
    const bool fresh = !p->core || p->core->standing() == core::Standing::kNew;
    // One that was begun on another node proves nothing of the one before it.
    const Process* const held = world_.processes.NewestOn(HolderOf(p->rank.value()), p->rank);
    if (fresh && held && held != p && held->alive) continue;
    if (consents || fresh || !p->alive) ranks[p->rank.value()] = consents;
  }
  return ranks;
}

void ElectionChecker::CheckActs(const Send& send, Phase phase) {
  if (!world_.plan.elections) return;
  const Generation generation = send.header.generation;
  const auto* order = std::get_if<PhaseOrder>(&send.message);
  const bool repairs = order && phase != Phase::kDump &&
                       (order->phase == Phase::kClean || order->phase == Phase::kRebuild ||
                        order->phase == Phase::kRepair || order->phase == Phase::kRollback);
  const Seat& seat = world_.seat();
  auto& weights = consents_[generation];
  if (std::holds_alternative<StopOrder>(send.message)) weights.emplace(seat.term, WeightOf(ConsentTo(generation)));
  if (!repairs || acted_.count({generation, seat.term})) return;
  const std::string who =
      "the controller of term " + std::to_string(seat.term.number) + " on node " + std::to_string(seat.node);
  // A process that came meanwhile consents by parking in this generation.
  const int now = WeightOf(ConsentTo(generation));
  if (const int weight = std::max(weights.emplace(seat.term, now).first->second, now); weight < 0)
    return sink_.Break(Promise::kOneDecider, who + " acts in generation " + generation.ToString() +
                                                 " with a weight of " + std::to_string(-weight - 1) + " of " +
                                                 std::to_string(world_.size));
  acted_.insert({generation, seat.term});
  // Where nobody is left who knows a generation, its number may be used again.
  for (const auto& [acted, term] : acted_)
    for (const Process* const p : world_.processes.newest())
      if (acted == generation && term != seat.term && p && p->alive && p->core && p->newest_term == term &&
          p->core->generation() == generation)
        return sink_.Break(Promise::kOneDecider, who + " and that of term " + std::to_string(term.number) +
                                                     " both act in generation " + generation.ToString());
}

}  // namespace kintsugi::sim
