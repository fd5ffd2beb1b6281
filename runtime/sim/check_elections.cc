// Promise 4 where there are several launchers: one decider. What is checked here is worked out from what happened, not
// asked of the cores.
#include <algorithm>

#include "runtime/sim/elections.h"

namespace kintsugi::sim {

// A launcher gives its promise to one candidate in a term.
void Cluster::CheckPromise(Launcher& l, int candidate, uint64_t term) {
  const auto [promise, first] = l.promised.emplace(term, candidate);
  if (!first && promise->second != candidate)
    return Break(Promise::kOneDecider, "node " + std::to_string(l.node) + " promises term " + std::to_string(term) +
                                           " to node " + std::to_string(candidate) + " and node " +
                                           std::to_string(promise->second));
  auto& ranks = promised_ranks_[{candidate, term}];
  for (int r = 0; r < plan_.policy.world_size; ++r) {
    if (HolderOf(r) != l.node) continue;
    const ProcessPtr p = NewestOn(l.node, Rank(r));
    if (bool& lives = ranks.emplace(r, false).first->second; p && p->alive) lives = true;
  }
}

// One term, one leader; and it was elected by more than half of the ranks, or by the half that has the lowest.
void Cluster::CheckLead(const Launcher& l, const core::ElectionCore::Lead& lead) {
  if (!lead.majority) return;
  const std::string who = "node " + std::to_string(l.node);
  const auto [led, first] = led_.emplace(lead.term, l.node);
  if (!first && led->second != l.node)
    return Break(Promise::kOneDecider, "term " + std::to_string(lead.term) + " is led by " + who + " and node " +
                                           std::to_string(led->second));
  const auto& ranks = promised_ranks_[{l.node, lead.term}];
  if (const int weight = WeightOf(ranks); weight < 0)
    Break(Promise::kOneDecider, who + " leads term " + std::to_string(lead.term) + " with a weight of " +
                                    std::to_string(-weight - 1) + " of " + std::to_string(world_));
}

// Twice the ranks that live and consent, and those that have ended; where that is too little, it is given as -1 less.
int Cluster::WeightOf(const std::map<int, bool>& ranks) const {
  const int world = plan_.policy.world_size;
  int weight = 0, lowest = world;
  for (int r = world - 1; r >= 0; --r) {
    const auto found = ranks.find(r);
    if (found != ranks.end()) weight += found->second ? 2 : 1;
    if (found == ranks.end() || found->second) lowest = r;
  }
  const bool has_lowest = lowest == world || ranks.count(lowest) > 0;
  return weight > world || (weight == world && has_lowest) ? weight : -weight - 1;
}

void Cluster::CheckTermObeyed(const Launcher& l, Term term) {
  if (term < l.term)
    Break(Promise::kOneDecider, "node " + std::to_string(l.node) + " obeys term " + std::to_string(term.number) +
                                    " and has obeyed term " + std::to_string(l.term.number));
}

// Who consents to this generation: processes that have heard of it from this controller; and who has ended. Of a rank
// whose new process holds nothing yet the one before has ended, and one that was never started can side with nobody.
std::map<int, bool> Cluster::ConsentTo(Generation generation) const {
  std::map<int, bool> ranks;
  for (int r = 0; r < plan_.policy.world_size; ++r)
    if (!Newest(Rank(r))) ranks[r] = false;
  for (const ProcessPtr p : processes_) {
    if (!p) continue;
    const bool consents = p->core && p->newest_term == seated_->term && p->core->generation() >= generation;
    const bool fresh = !p->core || p->core->standing() == core::Standing::kNew;
    // One that was begun on another node proves nothing of the one before it.
    const ProcessPtr held = NewestOn(HolderOf(p->rank.value()), p->rank);
    if (fresh && held && held != p && held->alive) continue;
    if (consents || fresh || !p->alive) ranks[p->rank.value()] = consents;
  }
  return ranks;
}

// A generation is one controller's, and begins with the consent of more than half of the ranks, or of the half that has
// the lowest. Who saves and leaves needs no consent.
void Cluster::CheckActs(const Send& send) {
  if (launchers_.empty()) return;
  const Generation generation = send.header.generation;
  const auto* order = std::get_if<PhaseOrder>(&send.message);
  const bool repairs = order && phase_ != Phase::kDump &&
                       (order->phase == Phase::kClean || order->phase == Phase::kRebuild ||
                        order->phase == Phase::kRepair || order->phase == Phase::kRollback);
  auto& weights = consents_[generation];
  if (std::holds_alternative<StopOrder>(send.message)) weights.emplace(seated_->term, WeightOf(ConsentTo(generation)));
  if (!repairs || acted_.count({generation, seated_->term})) return;
  const std::string who =
      "the controller of term " + std::to_string(seated_->term.number) + " on node " + std::to_string(seated_->node);
  // A process that came meanwhile consents by parking in this generation.
  const int now = WeightOf(ConsentTo(generation));
  if (const int weight = std::max(weights.emplace(seated_->term, now).first->second, now); weight < 0)
    return Break(Promise::kOneDecider, who + " acts in generation " + generation.ToString() + " with a weight of " +
                                           std::to_string(-weight - 1) + " of " + std::to_string(world_));
  acted_.insert({generation, seated_->term});
  // Where nobody is left who knows a generation, its number may be used again.
  for (const auto& [acted, term] : acted_)
    for (const ProcessPtr p : processes_)
      if (acted == generation && term != seated_->term && p && p->alive && p->core && p->newest_term == term &&
          p->core->generation() == generation)
        return Break(Promise::kOneDecider, who + " and that of term " + std::to_string(term.number) +
                                               " both act in generation " + generation.ToString());
}

void Cluster::CheckEndElected() {
  Seat* last = nullptr;
  for (const auto& seat : seats_) {
    Sit(seat.get());
    outcome_.incidents += core_->incidents();
    if (ended_ && (!last || ended_->exit_code == kExitSuccess)) last = seat.get();
  }
  outcome_.incidents -= core_->incidents();  // the last one's is counted by the caller
  if (!last) {  // all who were in the run are lost; who is there has been started anew, and found nobody
    outcome_.exit_code = kExitStartup;
    return;
  }
  outcome_.incidents += core_->incidents();
  Sit(last);
  outcome_.incidents -= core_->incidents();
  outcome_.exit_code = ended_->exit_code;
  outcome_.text = ended_->text;
  const std::string end = "exit " + std::to_string(ended_->exit_code) + " (" + ended_->text + ")";
  for (const auto& p : all_processes_)
    if (p->alive && !p->frozen) return Break(Promise::kTable, end + " leaves rank " + p->rank.ToString() + " behind");
  if (ended_->exit_code == kExitSuccess) return CheckSuccess();
  if (ended_->exit_code == kExitResumable && visible_.empty())
    return Break(Promise::kCheckpoint, end + " without a checkpoint");
  if (ended_->exit_code != kExitResumable && losses_.empty() && !stop_asked_)
    Break(Promise::kInnocent, end + " although nothing was lost");
}

}  // namespace kintsugi::sim
