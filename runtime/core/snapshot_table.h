// SnapshotTable: which in-memory snapshots exist, what of them is left, and where a reload takes each piece from.
//
// One attempt at a time: it is armed, every rank says what became of its own copy and of the one it keeps for another,
// and when all have spoken the attempt is settled. A snapshot counts only if every copy of it is whole, of that one
// step, and each second copy has the digest of the first. The newest that counts is kept until the next one counts.
// Threads: none.
// Errors: what does not belong to the attempt is refused by Take.
// Invariants: at most one snapshot counts; what died or failed is never named as a source.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "callbacks/handlers/orders.h"
#include "callbacks/handlers/snapshot_service.h"
#include "runtime/core/replica_map.h"
#include "runtime/core/snapshot_partners.h"

namespace kintsugi::core {

// With `auto`, copies take at most this share of the run's CPU time on the rank that has the most to do.
inline constexpr double kSnapshotShare = 0.01;
// Steps between snapshots that cost so much, where a step takes so long. At least 1.
uint64_t SnapshotInterval(Duration cost, Duration step_time);

class SnapshotTable {
 public:
  // A new attempt. `partners` by rank. REQUIRES: none is armed.
  void Arm(Step step, const std::vector<SnapshotPartner>& partners);
  bool armed() const { return armed_.has_value(); }
  Step armed_step() const { return armed_ ? armed_->step : Step(); }
  // Whether this rank's own report is still to come.
  bool Awaits(Rank rank) const;
  // The attempt is over and counts for nothing.
  void Disarm() { armed_.reset(); }

  // False: it is not of this attempt, not the reporter's to say, or said before.
  bool Take(Rank reporter, const SnapshotReport& report);
  bool settled() const { return armed_ && armed_->open == 0; }
  // Why the attempt cannot count, so far; nothing: it may. REQUIRES: armed.
  struct Failure {
    Rank rank;
    StatusCode code = StatusCode::kOk;
    std::string text;
  };
  const std::optional<Failure>& failure() const { return TheArmed().failure; }
  // Digests of all ranks' own copies, to be compared within the replica groups. REQUIRES: armed.
  const std::vector<std::map<int, uint64_t>>& digests() const { return TheArmed().digests; }
  Duration cost() const { return TheArmed().cost; }
  // REQUIRES: settled, without failure, digests compared.
  void Count();

  // A copy of a snapshot that counted to the controller before this one. `seats`: of the world.
  void Find(Rank reporter, const SnapshotReport& report, size_t seats);
  // Of those that were found the newest that can be gone back to counts; where none can, none.
  void TakeFound(const ReplicaMap& replicas);
  void ForgetFound() { found_.clear(); }

  // 0: none counts.
  Step newest() const { return counted_ ? counted_->step : Step(); }
  // Its digests, by rank and layout. REQUIRES: one counts.
  const std::vector<std::map<int, uint64_t>>& recorded() const;
  // The process is gone, and what it kept.
  void Forget(Rank rank);
  // What the rank holds of the newest snapshot cannot be used; where it holds nothing of it, nobody's can.
  void Spoil(Rank rank);
  // Snapshots of later steps are of a history that was given up, or not to be trusted.
  void DropAfter(Step step);

  // Nothing: why not. Else it can be gone back to: of each shard a copy is left.
  struct Usable {
    std::optional<Step> step;
    std::string why;
  };
  Usable FindUsable(const ReplicaMap& replicas) const;
  // Whether the rank has its own copy of the newest that counts, and those it keeps of it for others.
  bool Keeps(Rank rank) const { return counted_ && counted_->Has(rank); }
  // What must move for every rank to hold `step` again: nothing for a rank whose own copy is left. REQUIRES: usable.
  std::vector<RepairMove> PlanMoves(const ReplicaMap& replicas, Step step) const;

 private:
  struct Copy {
    bool own_told = false, kept_told = false;
    std::map<int, uint64_t> kept_digests;
  };
  struct Armed {
    Step step;
    std::vector<std::optional<Rank>> partners;
    std::vector<Copy> copies;                      // by owner
    std::vector<std::map<int, uint64_t>> digests;  // of own copies
    std::vector<bool> absent;                      // who takes no part has none
    size_t open = 0;                               // reports to come
    std::optional<Failure> failure;                // the first
    Duration cost{};
  };
  struct Counted {
    Step step;
    std::vector<std::optional<Rank>> partners;
    std::vector<std::map<int, uint64_t>> digests;
    std::vector<bool> lost;  // the rank's process, or what it holds
    bool Has(Rank holder) const { return !lost[static_cast<size_t>(holder.value())]; }
  };
  const Armed& TheArmed() const;
  void TakeDigests(const ReplicaMap& replicas);
  void Fail(Rank rank, const SnapshotReport& report, const std::string& what);
  // Ranks that hold the snapshot of `owner`, itself first.
  static std::vector<Rank> HoldersOf(const Counted& counted, Rank owner);
  // Whose snapshot brings `rank` its shard of `layout` back: its own, else that of a rank with the same shard.
  static std::optional<Rank> OwnerFor(const Counted& counted, const ReplicaMap& replicas, int layout, Rank rank);
  static Usable UsableOf(const Counted& counted, const ReplicaMap& replicas);

  std::optional<Armed> armed_;
  std::optional<Counted> counted_;
  std::map<Step, Counted> found_;
};

}  // namespace kintsugi::core
