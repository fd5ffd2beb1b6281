// The witness: something outside the run (etcd) that lends a lease to one side of an even split.
//
// The part that holds the lease may act, but only while it can be sure that nobody else has it: WordUntil.
//
// All must agree beforehand to go by the witness. A side that holds the lowest rank and cannot reach the witness
// does not know whether the other side can; if it acted, both might. So while all nodes hear the leader they agree on
// one TieRule, and it changes in two steps: first every node gives the old rule up (kNobody), then it takes the new
// one. Invariant (TieAgreement): no node goes by kWitness while another goes by kLowestRank, whatever is lost or late.
// Terms fence leaders: a node takes orders of the newest term that it has followed and of no older.
// Threads: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/core/consent.h"

namespace kintsugi::core {

// Until when the holder of a lease may act on it. `asked`: on its own monotonic clock, before the grant or the renewal
// was sent; so the witness counts from later on. A fifth is left for clocks that run at different speeds.
inline TimePoint WordUntil(TimePoint asked, Duration lease) { return asked + (lease - lease / 5); }

// An order of the leader to every node, counted within its term.
struct TieOrder {
  uint64_t number = 0;
  TieRule rule = TieRule::kNobody;
};

// The leader's side.
class TieAgreement {
 public:
  // `own`: what the leader's own node goes by when it begins to lead.
  TieAgreement(int nodes, TieRule own) : order_{1, own} {
    for (int node = 0; node < nodes; ++node) voters_.insert(node);
  }
  // Who must agree: at first the nodes from 0 on. One whose ranks another has now counts nowhere (placement.h), and may
  // go by what it likes.
  void SetVoters(std::set<int> voters) { voters_ = std::move(voters); }

  // What a node said before, on another connection or as another process, counts no more.
  void OnAway(int node) { taken_.erase(node); }
  void OnTaken(int node, uint64_t number) { taken_[node] = number; }

  // The order that stands, after a step towards what is wanted where every node is there and has taken the last one.
  TieOrder Decide(std::optional<TieRule> wanted);
  TieOrder order() const { return order_; }

 private:
  std::set<int> voters_;
  TieOrder order_;
  std::map<int, uint64_t> taken_;  // by node: its newest
};

}  // namespace kintsugi::core
