// SnapshotRounds: when an in-memory snapshot is made, who keeps which copy, and whether it counts.
//
// A round names a step that every rank has yet to reach, with the rank that keeps each second copy and the snapshot that
// must stay. Each rank copies at the boundary after that step, or says why not; when all have spoken the round is
// settled: it counts or does not. Nothing here is waited for: a round that a fault overtakes is void, and the newest
// snapshot that counts stays. What is held of it is the table's (snapshot_table.h).
//
// Threads: none; pure.
// Errors: a report of another round is not taken.
// Invariants: one round at a time; none once a rank has said that it can make none; a round is settled once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/core/controller_types.h"
#include "runtime/core/snapshot_partners.h"
#include "runtime/core/snapshot_table.h"

namespace kintsugi::core {

class SnapshotRounds {
 public:
  // Every so many steps, 0: never; or, `by_cost`, as often as their cost allows.
  SnapshotRounds(uint64_t every, bool by_cost);

  bool wanted() const { return every_ > 0 || by_cost_; }
  // Why no more are made; empty: they are.
  const std::string& off() const { return off_; }
  uint64_t made() const { return made_; }
  uint64_t abandoned() const { return abandoned_; }
  const SnapshotTable& table() const { return table_; }

  // A round may begin: they are made here, and none is under way.
  bool MayArm() const { return wanted() && off_.empty() && !table_.armed(); }
  // A rank is on another host, or the map of replicas is another one: at the next round partners are chosen anew.
  void ForgetPartners() { partners_known_ = false; }
  bool partners_known() const { return partners_known_; }
  // hosts[rank]. What costs somebody a second copy; empty: nothing does.
  std::string ChoosePartners(const ReplicaMap& replicas, const std::vector<std::string>& hosts, const Crew& crew);
  std::string ChoosePartners(const ReplicaMap& replicas, const std::vector<std::string>& hosts) {
    return ChoosePartners(replicas, hosts, Crew(static_cast<int>(hosts.size())));
  }
  // `begun`: the newest step that any rank has begun. Where a part of the newest snapshot was lost, the next does not wait for
  // its turn: until it counts, a second loss may be the end of the run. REQUIRES: MayArm, partners_known.
  void Arm(Step begun);
  // What the rank is told, and told again after a lost connection; nothing once it has spoken.
  std::optional<SnapshotOrder> OrderFor(Rank rank) const;
  // True: with this report all have spoken, and the round is to be settled.
  bool Take(Rank reporter, const SnapshotReport& report) { return table_.Take(reporter, report) && table_.settled(); }
  // `step_time`: as far as one is learnt. REQUIRES: all have spoken.
  SnapshotSettled Settle(const ReplicaMap& replicas, std::optional<Duration> step_time);

  // Copies of a snapshot that counted to the controller before this one, until this one has begun a round of its own.
  void Find(Rank reporter, const SnapshotReport& report, size_t seats);
  void TakeFound(const ReplicaMap& replicas);
  // The rank's memory was found damaged, and nobody knows yet which others could tell of the copies.
  void SuspectFound(Step computing);

  // A fault overtakes the round.
  void Disarm() { table_.Disarm(); }
  // What became of the ranks, and of the run's history (snapshot_table.h).
  void Forget(Rank rank);
  void Spoil(Rank rank);
  void DropAfter(Step step) { table_.DropAfter(step); }
  // The rank's memory was found damaged while it computed this step: it may have been copied before.
  void Suspect(const ReplicaMap& replicas, Rank rank, Step computing);
  // What a reload can go back to. `suspect_from`: updates from there on may hold damage.
  SnapshotTable::Usable FindUsable(const ReplicaMap& replicas, std::optional<Step> suspect_from) const;

 private:
  const uint64_t every_;
  const bool by_cost_;
  SnapshotTable table_;
  bool partners_known_ = false;
  std::vector<SnapshotPartner> partners_;   // by rank
  std::vector<std::vector<Rank>> kept_of_;  // the same, the other way round
  uint64_t interval_;                       // in steps
  uint64_t margin_ = 1;                     // steps ahead at which one is ordered; grows when orders come late
  bool hurried_ = false;                    // the next one does not wait for its turn
  bool finds_ = true;                       // what the controller before this one had counts
  std::optional<Step> found_until_;         // those of later steps may hold damage
  std::string off_;
  uint64_t made_ = 0, abandoned_ = 0;
};

}  // namespace kintsugi::core
