// ElectionChecker: promise 4 where there are several launchers: one decider. What is checked here is worked out from
// what happened, not asked of the cores.
//
// Threads: none.
// Ownership: of what was promised, led and consented to; it sees the world and changes nothing in it.
// Errors: what it finds goes to the sink.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "runtime/core/election.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class ElectionChecker {
 public:
  ElectionChecker(const World& world, Violations& sink) : world_(world), sink_(sink) {}

  // Who leads when the run begins.
  void Begin(int node, uint64_t term) { led_[term] = node; }
  // A launcher was started anew and knows nothing: its promise of a term may go to another. That makes no second leader.
  void ForgetPromises(int node);

  // A launcher gives its promise to one candidate in a term.
  void CheckPromise(int node, int candidate, uint64_t term);
  // One term, one leader; and it was elected by more than half of the ranks, or by the half that has the lowest.
  void CheckLead(int node, const core::ElectionCore::Lead& lead);
  void CheckTermObeyed(int node, Term obeyed, Term term);
  // A generation is one controller's, and begins with the consent of more than half of the ranks, or of the half that
  // has the lowest. Who saves (`phase` is where the controller stands) and leaves needs no consent.
  void CheckActs(const Send& send, Phase phase);

 private:
  int HolderOf(int rank) const;
  bool HasSucceeded(const Process& process) const;
  int WeightOf(const std::map<int, bool>& ranks) const;
  std::map<int, bool> ConsentTo(Generation generation) const;

  const World& world_;
  Violations& sink_;
  std::map<uint64_t, int> led_;                                             // by whom, by term
  std::map<int, std::map<uint64_t, int>> promised_;                         // by node: to whom, by term
  std::map<std::pair<int, uint64_t>, std::map<int, bool>> promised_ranks_;  // to a candidate in a term; who lived
  std::set<std::pair<Generation, Term>> acted_;                             // who repaired in a generation
  std::map<Generation, std::map<Term, int>> consents_;                      // with what weight it began
};

}  // namespace kintsugi::sim
