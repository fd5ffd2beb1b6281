// Losses: which ranks something struck, for the checkers: nobody else may pay.
//
// Threads: none.
// Invariants: a fault that destroys is a loss; one that disturbs is short enough to be borne alone, two may add up.
#pragma once

#include <map>
#include <set>

#include "runtime/core/replica_map.h"
#include "runtime/sim/plan.h"

namespace kintsugi::sim {

class Losses {
 public:
  explicit Losses(const Policy& policy) : policy_(policy) {}

  void Lose(int rank, int times = 1) { losses_[rank] += times; }
  // A process that a supervisor is late to bring costs its rank all the respawns it has: nobody goes on waiting for it.
  void Late(int rank) { Lose(rank, policy_.can_spawn ? 1 : 1 + policy_.max_respawns); }
  void AllLate();
  void Disturb(int rank);
  // Somebody asked for a new process of it: it is given up for that, and nothing of it may be lost.
  void Ask(int rank) { asked_.insert(rank); }

  bool none() const { return losses_.empty(); }
  bool lost(int rank) const { return losses_.count(rank) > 0 || asked_.count(rank) > 0; }
  bool asked() const { return !asked_.empty(); }
  bool struck(int rank) const { return lost(rank) || disturbed_.count(rank) > 0; }
  // Whether one rank was lost that often, what was asked for included.
  bool OneLost(int times) const;
  // Whether so many were that the others may not decide alone, who left the run with its node's word outstanding included.
  bool MajorityAtRisk() const;
  // Whether all that hold one shard were.
  bool ShardAtRisk(const ReplicaMap& replicas) const;

 private:
  const Policy& policy_;
  std::map<int, int> losses_, disturbed_;  // by rank
  std::set<int> asked_;
};

}  // namespace kintsugi::sim
