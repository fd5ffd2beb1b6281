// The recovery ladder: which rung repairs an incident, and why each cheaper one was refused.
//
// Pure: (facts, policy) -> {rung, reasons}. Each rung is one function that states its preconditions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "callbacks/handlers/orders.h"
#include "runtime/core/held_state.h"
#include "runtime/core/policy.h"
#include "runtime/core/replica_map.h"
#include "runtime/core/step_choice.h"

namespace kintsugi::core {

std::string_view RungName(Rung rung);

// What is wrong with a rank once all survivors are parked.
enum class Condition : uint8_t {
  kGood,     // holds step S
  kDamaged,  // named tensors are damaged, the rest is step S
  kTorn,     // process alive, its state is no step's, or not S
  kGone,     // the process is gone
};

struct RankFacts {
  Rank rank;
  Condition condition = Condition::kGood;
  std::map<int, std::vector<std::string>> damaged;  // kDamaged: which tensors, by layout
  int respawns_left = 0;
  std::string start_failure;         // why its newest replacement did not come; empty: nothing is known of that
  bool replacement_started = false;  // kGone: a new process is on its way
  std::optional<HeldState> held;     // kGone: what its launcher still has of the lost process
  int rescues_left = 0;              // kGone: so often may a process be started only to save what is held
  bool absent = false;            // kGone: its node stays away; where a smaller world is to be had, it is lost for good
  bool spare_takes_over = false;  // kGone: and it is one that had been waiting, warm, on the rank's node
  bool objects_ahead = false;     // nobody but itself has its newest mirrored objects
  bool can_write = true;          // false: it failed to save before; another holder is asked first
  bool has_snapshot = false;      // its process has what it copied, and keeps for others, of IncidentFacts::snapshot
  // Whether it lacks something of its shard of a layout.
  bool Lacks(int layout) const {
    return condition != Condition::kGood && (condition != Condition::kDamaged || damaged.count(layout) > 0);
  }
};

enum class Refusal : uint8_t {
  kConfirmedFault,
  kStateLost = 2,  // 1 is not said any more; journals have the numbers
  kProcessGone,
  kWholeRankTorn,
  kNoSource,
  kNotHeld,
  kHeldElsewhere,
  kHeldInDoubt,
  kNoRespawnLeft,
  kNotOffered,
  kNoSpare,
  kNoCheckpoint,
  kRepairPossible,
  kNoSaveDirectory,
  kShardLost,
  kChosen,
  kLeaving,
  kSuspect,
  kHeldInVain,
  kNobodyLostForGood,
  kBytesWouldMove,
  kNoMajorityStays,
  kForbidden,
  kNodeAbsent,
  kGoesBack,  // the last one: runtime/wire/words.h reads up to it
};

// In which the run could go on without the ranks that are lost for good.
struct SmallerWorld {
  std::optional<Crew> crew;  // none: `reason` and `why`
  Refusal reason = Refusal::kNotOffered;
  std::string why = "the layout has no smaller form";  // with a crew: who goes on
  std::optional<Step> back_to =
      {};  // with a crew: all go back to the in-memory snapshot of this step; none: they go on from S
};

// In which it is to go on, by somebody's word.
struct AskedWorld {
  std::optional<Crew> crew;  // none: nobody asked, or it cannot be had now
  Rung rung = Rung::kGrow;
  std::string why;
};

struct IncidentFacts {
  std::vector<RankFacts> ranks;  // all that take part, ascending
  StepChoice step;
  bool confirmed = true;           // false: the signal healed, nothing was stopped
  bool checkpoint_exists = false;  // a complete checkpoint that a reload can use
  std::optional<Step> checkpoint;  // ... and its step
  std::optional<Step> snapshot;    // the newest in-memory snapshot that counts and is still held whole
  std::string no_snapshot;         // why there is none; empty where none is made
  // Step S and those since this one were computed with gradients that may hold damage: no copy of them is any good.
  std::optional<Step> suspect_from;
  // The ranks leave out what comes from this step on, and step S lies behind it.
  std::optional<Step> back_from;
  bool goes_back = false;      // there is an older state to go back to, if not as old as that
  bool save_possible = false;  // a save directory is set
  std::string leaving;         // why what can be saved is saved and nothing repaired any more; empty: it is
  // Where replicas are compared between steps: the newest step at which all agreed, 0 for the registered state.
  std::optional<Step> compared;

  SmallerWorld smaller = {};
  AskedWorld asked = {};

  // Of those that are in this crew.
  IncidentFacts Within(const Crew& crew) const;
  // Ranks whose process is gone, and no other one comes; `absent`: or not soon.
  std::vector<Rank> LostForGood(bool absent) const;
  // REQUIRES: it takes part.
  const RankFacts& At(Rank rank) const;
  RankFacts& At(Rank rank) { return const_cast<RankFacts&>(std::as_const(*this).At(rank)); }
};

struct RungReason {
  Rung rung = Rung::kResume;
  Refusal reason = Refusal::kChosen;
  std::string text;
};

struct RungDecision {
  Rung rung = Rung::kResume;
  std::vector<RungReason> reasons;  // one per rung considered, the chosen one last
  std::optional<Crew> crew = {};    // who goes on, where that are others than before
};

// "rank 4 has no respawn left", and what became of the last one.
std::string NoRespawnText(Rank rank, const std::string& start_failure);

RungDecision DecideRung(const IncidentFacts& incident, const ReplicaMap& replicas);

// Whether a reload goes back to the in-memory snapshot: it is newer than the newest checkpoint, or there is none.
bool ReloadsFromSnapshot(const IncidentFacts& incident);

// Ranks other than `rank` that have `layout`'s shard of it at S, ascending: those that hold it intact; where there are
// none, those that will have adopted it by then (they do so before they send).
std::vector<Rank> SourcesFor(const IncidentFacts& incident, const ReplicaMap& replicas, int layout, Rank rank);

// Whether the memory of `rank`'s lost process is its state at S: adopted, it needs no source. What a process left that
// died of an error of its own counts only where another copy at S, live or held, can contradict it: VERIFY compares.
bool CanAdopt(const IncidentFacts& incident, const ReplicaMap& replicas, const RankFacts& rank);

// Whether some shard is neither held at S by a living rank nor by a launcher.
bool LacksState(const IncidentFacts& incident, const ReplicaMap& replicas);

// The moves that bring every rank to S; empty where nothing moves. REQUIRES: each has a source, or can be adopted.
std::vector<RepairMove> PlanMoves(const IncidentFacts& incident, const ReplicaMap& replicas);

// Lost ranks whose held memory a save at S needs, since no living rank holds their shard: a process is started for each
// that adopts and writes. All that hold such a shard, so that they can be compared.
std::vector<Rank> PlanRescue(const IncidentFacts& incident, const ReplicaMap& replicas);

// Who writes what in a save at S: one entry per distinct shard, its writer the first intact holder that
// has not failed to write before, else the first intact one.
// REQUIRES: every shard has an intact holder.
struct SaveAssignment {
  Rank writer;
  SaveEntry entry;
};
std::vector<SaveAssignment> PlanSave(const IncidentFacts& incident, const ReplicaMap& replicas);

}  // namespace kintsugi::core
