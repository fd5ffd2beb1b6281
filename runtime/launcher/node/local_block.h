// LocalBlock: which ranks this launcher starts, by the leader's word, and where all ranks live, as far as is known.
//
// Threads: one, that of the launcher.
// Ownership: state and pool outlive it.
// Errors: none.
// Invariants: what others say of the placement is learnt; whose ranks are started here changes only by the word of a
// leader that knows of no older one.
#pragma once

#include <optional>

#include "runtime/core/placement.h"
#include "runtime/launcher/node/node_state.h"
#include "runtime/launcher/workers/worker_pool.h"

namespace kintsugi {

class LocalBlock {
 public:
  LocalBlock(NodeState& state, WorkerPool& pool);

  const core::Placement& placement() const { return placement_; }
  // Another's, where that is newer.
  bool Learn(const core::Placement& placement);
  // The leader's.
  void Take(const core::Placement& placement);

  // It has a part of the ranks. Else it is a controller, or a spare.
  bool has_ranks() const { return block_.has_value(); }
  std::optional<int> number() const { return block_; }
  // ... and one of them at least is of the run, by the leader's last word.
  bool takes_part() const;
  bool Has(Rank rank) const { return block_ && rank.value() / state_.self.local_ranks() == *block_; }
  // What this launcher's word weighs in an election.
  core::ElectionCore::LocalRanks RanksHere() const;

 private:
  std::optional<int> BlockHere() const;

  NodeState& state_;
  WorkerPool& pool_;
  core::Placement placement_;  // the newest that is known of
  std::optional<int> block_;
};

}  // namespace kintsugi
