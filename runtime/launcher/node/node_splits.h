// NodeSplits: even splits as a node goes by them: the rule that its leader ordered last, and where there is a witness,
// whether its lease is wanted here.
//
// Threads: one, that of the launcher.
// Ownership: of the witness. The state outlives it.
// Errors: as the witness's: what cannot be reached decides nothing.
// Invariants: an order is taken once and in the order of its number, within one leader's term; without a witness the
// lowest rank decides.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "runtime/core/witness.h"
#include "runtime/launcher/lease/witness.h"
#include "runtime/launcher/node/node_state.h"

namespace kintsugi {

class NodeSplits {
 public:
  // `on_word`: until when the lease is held here, after each change.
  NodeSplits(boost::asio::io_context& io, NodeState& state, std::function<void(TimePoint)> on_word);

  core::TieRule rule() const { return rule_; }
  // An instant that is over: it is not.
  TimePoint held_until() const { return witness_ ? witness_->held_until() : TimePoint(); }
  bool has_witness() const { return witness_ != nullptr; }

  // An election or the leader here asks for the lease, or it is of no use any more.
  void WantLease() { lease_wanted_ = true; }
  void GiveLeaseUp() { lease_wanted_ = false; }
  // Another leader counts its orders anew.
  void OnFollowed() { order_ = 0; }

  struct Taken {
    bool news = false;     // the order was not known: the leader is told that it is taken
    bool changed = false;  // and it is another rule
  };
  Taken Take(const core::TieOrder& order);
  // Every few milliseconds. `leads`: the leader is here; `over`: its run has ended for all. What all nodes should go by,
  // where that is known.
  std::optional<core::TieRule> Poll(bool leads, bool over);

 private:
  NodeState& state_;
  std::unique_ptr<Witness> witness_;  // null: none
  core::TieRule rule_ = core::TieRule::kLowestRank;
  uint64_t order_ = 0;  // the newest one taken of the present leader
  bool lease_wanted_ = false;
};

}  // namespace kintsugi
