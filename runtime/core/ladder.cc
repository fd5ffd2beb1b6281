#include "runtime/core/ladder.h"

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

bool IsLostForGood(const RankFacts& r) {
  return r.condition == Condition::kGone && !r.replacement_started && r.respawns_left <= 0;
}

struct Context {
  const IncidentFacts& incident;
  const ReplicaMap& replicas;

  const RankFacts& At(Rank rank) const { return incident.At(rank); }
  const RankFacts* First(Condition condition) const {
    for (const RankFacts& r : incident.ranks)
      if (r.condition == condition) return &r;
    return nullptr;
  }
  // A rank whose lost state nobody holds.
  std::optional<std::pair<int, Rank>> Unsourced() const {
    for (const RankFacts& r : incident.ranks) {
      if (r.condition == Condition::kGood || CanAdopt(incident, replicas, r)) continue;
      for (int layout : replicas.LayoutsOf(r.rank))
        if (r.Lacks(layout) && SourcesFor(incident, replicas, layout, r.rank).empty()) return std::pair{layout, r.rank};
    }
    return std::nullopt;
  }
  const RankFacts* WithoutRespawn() const {
    for (const RankFacts& r : incident.ranks)
      if (IsLostForGood(r) || IsLeftOut(r)) return &r;
    return nullptr;
  }
  // It would come, but the run can go on before that.
  bool IsLeftOut(const RankFacts& r) const {
    return r.absent && r.condition == Condition::kGone && incident.smaller.crew && !incident.smaller.crew->Has(r.rank);
  }
  RungReason NoProcess(Rung rung, const RankFacts& r) const {
    if (IsLeftOut(r)) return {rung, Refusal::kNodeAbsent, "the node of rank " + r.rank.ToString() + " stays away"};
    return {rung, Refusal::kNoRespawnLeft, NoRespawnText(r.rank, r.start_failure)};
  }
};

bool IsGood(const RankFacts& rank) { return rank.condition == Condition::kGood; }

bool IsHeldAt(const RankFacts& rank, const std::optional<Step>& step) {
  return rank.condition == Condition::kGone && rank.held && step && rank.held->step == *step;
}

// An error of a process's own may have written anywhere before it ended it; then VERIFY has to compare, with whatever
// copy there is.
bool Vouched(const IncidentFacts& incident, const ReplicaMap& replicas, const RankFacts& rank) {
  if (rank.held->clean) return true;
  const std::vector<int> layouts = replicas.LayoutsOf(rank.rank);
  return std::all_of(layouts.begin(), layouts.end(), [&](int layout) {
    const std::vector<Rank>& holders = replicas.Holders(layout, rank.rank);
    return std::any_of(holders.begin(), holders.end(), [&](Rank holder) {
      const RankFacts& other = incident.At(holder);
      return holder != rank.rank && (IsGood(other) || IsHeldAt(other, incident.step.step));
    });
  });
}

// What is streamed from a copy that no other copy at S can contradict.
std::string LoneCopies(const IncidentFacts& incident, const ReplicaMap& replicas) {
  if (!incident.compared) return "";
  std::string first;
  size_t more = 0;
  for (const RepairMove& move : PlanMoves(incident, replicas)) {
    if (move.adopt || move.sources.size() != 1) continue;
    const std::vector<Rank>& holders = replicas.Holders(move.layout, move.destination);
    const auto opinions = std::count_if(holders.begin(), holders.end(), [&](Rank holder) {
      const RankFacts& rank = incident.At(holder);
      return IsGood(rank) || CanAdopt(incident, replicas, rank);
    });
    if (opinions > 1) continue;
    if (!first.empty()) {
      ++more;
      continue;
    }
    first = "; layout " + std::to_string(move.layout) + " of rank " + move.destination.ToString() +
            " comes from rank " + move.sources.front().ToString() +
            " alone, with nothing left to compare it with (replicas last agreed at step " +
            incident.compared->ToString() + ")";
  }
  return more == 0 ? first : first + " (and " + std::to_string(more) + " more)";
}

bool CanRescue(const IncidentFacts& incident, const ReplicaMap& replicas, Rank rank) {
  const RankFacts& lost = incident.At(rank);
  return lost.rescues_left > 0 && CanAdopt(incident, replicas, lost);
}

using Verdict = std::optional<RungReason>;  // nothing: the rung holds

RungReason Refuse(Rung rung, Refusal reason, std::string text) { return {rung, reason, std::move(text)}; }

std::string NobodyHolds(const std::pair<int, Rank>& lost) {
  return "neither an intact rank nor a launcher holds layout " + std::to_string(lost.first) + " of rank " +
         lost.second.ToString();
}

// Without a common step every rank lacks its state; one of them is why.
std::string NoCommonStep(const StepChoice& choice) {
  const std::string text = "there is no step that every shard still holds";
  if (!choice.lack) return text;
  return text + ": at the newest, step " + choice.lack->step.ToString() + ", nobody holds layout " +
         std::to_string(choice.lack->layout) + " of rank " + choice.lack->rank.ToString();
}

Verdict RefuseUnsourced(Rung rung, const Context& c) {
  const auto lost = c.Unsourced();
  if (!lost) return std::nullopt;
  return Refuse(rung, Refusal::kNoSource, c.incident.step.lack ? NoCommonStep(c.incident.step) : NobodyHolds(*lost));
}

Verdict TryResume(const Context& c) {
  if (!c.incident.confirmed) return std::nullopt;
  return Refuse(Rung::kResume, Refusal::kConfirmedFault, "the fault is real: the step was stopped");
}

Verdict TryRetry(const Context& c) {
  for (const RankFacts& r : c.incident.ranks)
    if (r.condition != Condition::kGood)
      return Refuse(Rung::kRetry, Refusal::kStateLost, "rank " + r.rank.ToString() + " lost state");
  return std::nullopt;
}

Verdict TryPatch(const Context& c) {
  if (const auto* gone = c.First(Condition::kGone))
    return Refuse(Rung::kPatch, Refusal::kProcessGone, "rank " + gone->rank.ToString() + "'s process is gone");
  if (const auto* torn = c.First(Condition::kTorn))
    return Refuse(Rung::kPatch, Refusal::kWholeRankTorn,
                  "rank " + torn->rank.ToString() + " lost more than named tensors");
  return RefuseUnsourced(Rung::kPatch, c);
}

Verdict TryRebuild(const Context& c) {
  if (const auto* gone = c.First(Condition::kGone))
    return Refuse(Rung::kRebuild, Refusal::kProcessGone, "rank " + gone->rank.ToString() + "'s process is gone");
  return RefuseUnsourced(Rung::kRebuild, c);
}

Verdict TryAdopt(const Context& c) {
  for (const RankFacts& r : c.incident.ranks) {
    if (r.condition != Condition::kGone || CanAdopt(c.incident, c.replicas, r)) continue;
    const std::string of_rank = " of rank " + r.rank.ToString() + "'s lost process";
    if (!r.held) return Refuse(Rung::kAdopt, Refusal::kNotHeld, "the launcher holds no whole memory" + of_rank);
    if (!Vouched(c.incident, c.replicas, r))
      return Refuse(
          Rung::kAdopt, Refusal::kHeldInDoubt,
          "an error of its own ended rank " + r.rank.ToString() + ", and no replica can vouch for its memory");
    return Refuse(
        Rung::kAdopt, Refusal::kHeldElsewhere,
        "the memory" + of_rank + " stands at step " + r.held->step.ToString() + ", not where all others meet");
  }
  if (const auto* spent = c.WithoutRespawn()) return c.NoProcess(Rung::kAdopt, *spent);
  return RefuseUnsourced(Rung::kAdopt, c);
}

Verdict TrySpare(const Context& c) {
  for (const RankFacts& r : c.incident.ranks)
    if (r.condition == Condition::kGone && !r.spare_takes_over)
      return Refuse(Rung::kSpare, Refusal::kNoSpare, "no warm process waited on rank " + r.rank.ToString() + "'s node");
  if (const auto* spent = c.WithoutRespawn()) return c.NoProcess(Rung::kSpare, *spent);
  return RefuseUnsourced(Rung::kSpare, c);
}

Verdict TryRespawn(const Context& c) {
  if (const auto* spent = c.WithoutRespawn()) return c.NoProcess(Rung::kRespawn, *spent);
  return RefuseUnsourced(Rung::kRespawn, c);
}

Verdict TryShrink(const Context& c) {
  const SmallerWorld& smaller = c.incident.smaller;
  if (smaller.crew) return std::nullopt;
  return Refuse(Rung::kShrink, smaller.reason, smaller.why);
}

Verdict TryReload(const Context& c) {
  if (!c.Unsourced() && c.incident.step.step && !c.incident.suspect_from && !c.incident.goes_back)
    return Refuse(Rung::kReload, Refusal::kRepairPossible, "every shard is still held: nothing needs to be read back");
  if (!c.incident.checkpoint_exists && !c.incident.snapshot)
    return Refuse(Rung::kReload, Refusal::kNoCheckpoint,
                  "there is no complete checkpoint to go back to" +
                      (c.incident.no_snapshot.empty() ? "" : ", and " + c.incident.no_snapshot));
  if (const auto* spent = c.WithoutRespawn()) return c.NoProcess(Rung::kReload, *spent);
  return std::nullopt;
}

Verdict TryDump(const Context& c) {
  if (!c.incident.save_possible) return Refuse(Rung::kDump, Refusal::kNoSaveDirectory, "no save directory is set");
  if (!c.incident.step.step) return Refuse(Rung::kDump, Refusal::kShardLost, NoCommonStep(c.incident.step));
  if (const auto lost = c.Unsourced()) return Refuse(Rung::kDump, Refusal::kShardLost, NobodyHolds(*lost));
  for (const ReplicaMap::Shard& shard : c.replicas.shards())
    if (std::none_of(shard.holders.begin(), shard.holders.end(),
                     [&](Rank holder) { return IsGood(c.At(holder)) || CanRescue(c.incident, c.replicas, holder); }))
      return Refuse(Rung::kDump, Refusal::kHeldInVain,
                    "layout " + std::to_string(shard.layout) + " of rank " + shard.holders.front().ToString() +
                        " is held by a launcher alone, and every process started to save it failed");
  return std::nullopt;
}

Verdict TryExit(const Context&) { return std::nullopt; }

// The ranks have ordered it.
std::string NotGoneBack(const IncidentFacts& incident) {
  if (!incident.back_from || incident.goes_back) return "";
  return "; the run cannot go back to before step " + incident.back_from->ToString() +
         ": there is no older checkpoint, and " +
         (incident.no_snapshot.empty() ? "no in-memory snapshots are made (--snapshot-every)" : incident.no_snapshot);
}

// What the chosen rung is chosen for.
std::string Choice(Rung rung, const IncidentFacts& incident, const ReplicaMap& replicas) {
  if (rung == Rung::kShrink) return incident.smaller.why;
  if (rung != Rung::kReload)
    return "cheapest rung whose preconditions hold" + (rung < Rung::kReload ? LoneCopies(incident, replicas) : "") +
           NotGoneBack(incident);
  const std::string checkpoint =
      incident.checkpoint ? "checkpoint of step " + incident.checkpoint->ToString() : "no complete checkpoint";
  if (ReloadsFromSnapshot(incident))
    return "back to the in-memory snapshot of step " + incident.snapshot->ToString() +
           "; newest on disk: " + checkpoint;
  if (incident.snapshot)
    return "back to the " + checkpoint + "; the in-memory snapshot, of step " + incident.snapshot->ToString() +
           ", is not newer";
  return "back to the " + checkpoint + (incident.no_snapshot.empty() ? "" : "; " + incident.no_snapshot);
}

// Another world that somebody asked for is for ranks of which nothing is wrong: what is wrong is repaired first, in the one
// that is there.
bool CanTakeAsked(const IncidentFacts& incident) {
  return incident.asked.crew && incident.confirmed && incident.step.step && incident.leaving.empty() &&
         !incident.suspect_from && !incident.goes_back &&
         std::all_of(incident.ranks.begin(), incident.ranks.end(), IsGood);
}

// Without a common step no rung below reload can hold, whatever its own preconditions say.
bool NeedsStep(Rung rung) { return rung != Rung::kResume && rung < Rung::kReload; }

// What it goes back to is older than whatever is wrong with the step at which all meet.
bool GoesBack(Rung rung, const IncidentFacts& incident) {
  return rung == Rung::kReload || (rung == Rung::kShrink && incident.smaller.back_to);
}

}  // namespace

IncidentFacts IncidentFacts::Within(const Crew& crew) const {
  IncidentFacts within = *this;
  std::erase_if(within.ranks, [&crew](const RankFacts& each) { return !crew.Has(each.rank); });
  return within;
}

std::vector<Rank> IncidentFacts::LostForGood(bool absent) const {
  std::vector<Rank> lost;
  for (const RankFacts& each : ranks)
    if (IsLostForGood(each) || (absent && each.absent && each.condition == Condition::kGone)) lost.push_back(each.rank);
  return lost;
}

const RankFacts& IncidentFacts::At(Rank rank) const {
  const auto seat = static_cast<size_t>(rank.value());
  if (seat < ranks.size() && ranks[seat].rank == rank) return ranks[seat];
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank,
                                      [](const RankFacts& each, Rank wanted) { return each.rank < wanted; });
  KINTSUGI_CHECK(found != ranks.end() && found->rank == rank, "rank " + rank.ToString() + " takes no part");
  return *found;
}

std::string_view RungName(Rung rung) {
  constexpr std::array<std::string_view, 12> kNames = {"resume",  "retry",  "patch",  "rebuild", "adopt", "spare",
                                                       "respawn", "shrink", "reload", "dump",    "exit",  "grow"};
  return kNames[static_cast<size_t>(rung)];
}

bool ReloadsFromSnapshot(const IncidentFacts& incident) {
  if (!incident.snapshot) return false;
  return !incident.checkpoint_exists || !incident.checkpoint || *incident.snapshot > *incident.checkpoint;
}

std::string NoRespawnText(Rank rank, const std::string& start_failure) {
  return "rank " + rank.ToString() + " has no respawn left" + (start_failure.empty() ? "" : ": " + start_failure);
}

RungDecision DecideRung(const IncidentFacts& incident, const ReplicaMap& replicas) {
  using Try = Verdict (*)(const Context&);
  constexpr std::array<Try, 11> kLadder = {TryResume,  TryRetry,  TryPatch,  TryRebuild, TryAdopt, TrySpare,
                                           TryRespawn, TryShrink, TryReload, TryDump,    TryExit};
  const Context context{incident, replicas};
  if (const AskedWorld& asked = incident.asked; CanTakeAsked(incident))
    return {asked.rung, {{asked.rung, Refusal::kChosen, asked.why}}, asked.crew};
  RungDecision decision{Rung::kExit, {}};
  // Where a rank is lost for good the others go on as they are, rather than not at all.
  const bool goes_back = incident.goes_back && incident.confirmed && !TryReload(context);
  for (size_t i = 0; i < kLadder.size(); ++i) {
    const Rung rung = static_cast<Rung>(i);
    Verdict refusal = kLadder[i](context);
    if (!refusal && !incident.leaving.empty() && rung < Rung::kDump)
      refusal = Refuse(rung, Refusal::kLeaving, incident.leaving);
    if (!refusal && incident.suspect_from && rung != Rung::kResume && rung <= Rung::kDump && !GoesBack(rung, incident))
      refusal = Refuse(rung, Refusal::kSuspect,
                       "updates from step " + incident.suspect_from->ToString() +
                           " on were computed with memory that may have been damaged");
    if (!refusal && goes_back && rung < Rung::kReload)
      refusal = Refuse(
          rung, Refusal::kGoesBack,
          "the ranks leave out what comes from step " + incident.back_from->ToString() + " on, and the run goes back");
    if (!refusal && NeedsStep(rung) && !incident.step.step && !GoesBack(rung, incident))
      refusal = Refuse(rung, Refusal::kShardLost, "there is no step that every shard still holds");
    if (refusal) {
      decision.reasons.push_back(*refusal);
      continue;
    }
    decision.rung = rung;
    if (rung == Rung::kShrink) decision.crew = incident.smaller.crew;
    decision.reasons.push_back({rung, Refusal::kChosen, Choice(rung, incident, replicas)});
    return decision;
  }
  return decision;
}

std::vector<Rank> SourcesFor(const IncidentFacts& incident, const ReplicaMap& replicas, int layout, Rank rank) {
  std::vector<Rank> good, adopting, crashed;
  for (Rank holder : replicas.Holders(layout, rank)) {
    const RankFacts& other = incident.At(holder);
    if (holder == rank) continue;
    if (IsGood(other))
      good.push_back(holder);
    else if (CanAdopt(incident, replicas, other))
      (other.held->clean ? adopting : crashed).push_back(holder);
  }
  return !good.empty() ? good : !adopting.empty() ? adopting : crashed;
}

bool CanAdopt(const IncidentFacts& incident, const ReplicaMap& replicas, const RankFacts& rank) {
  return IsHeldAt(rank, incident.step.step) && Vouched(incident, replicas, rank);
}

bool LacksState(const IncidentFacts& incident, const ReplicaMap& replicas) {
  return !incident.step.step || Context{incident, replicas}.Unsourced();
}

std::vector<RepairMove> PlanMoves(const IncidentFacts& incident, const ReplicaMap& replicas) {
  std::vector<RepairMove> moves;
  for (const RankFacts& r : incident.ranks) {
    if (r.condition == Condition::kGood) continue;
    const bool adopt = CanAdopt(incident, replicas, r);
    for (int layout : replicas.LayoutsOf(r.rank)) {
      if (adopt) {
        moves.push_back({layout, r.rank, {}, {}, true});
        continue;
      }
      std::vector<std::string> keys;
      if (r.condition == Condition::kDamaged) {
        const auto damaged = r.damaged.find(layout);
        if (damaged == r.damaged.end()) continue;  // nothing of this layout is
        keys = damaged->second;
      }
      moves.push_back({layout, r.rank, SourcesFor(incident, replicas, layout, r.rank), std::move(keys)});
    }
  }
  return moves;
}

std::vector<Rank> PlanRescue(const IncidentFacts& incident, const ReplicaMap& replicas) {
  std::set<Rank> rescued;
  for (const ReplicaMap::Shard& shard : replicas.shards()) {
    if (std::any_of(shard.holders.begin(), shard.holders.end(), [&](Rank r) { return IsGood(incident.At(r)); }))
      continue;
    for (Rank holder : shard.holders)
      if (CanRescue(incident, replicas, holder)) rescued.insert(holder);
  }
  return {rescued.begin(), rescued.end()};
}

std::vector<SaveAssignment> PlanSave(const IncidentFacts& incident, const ReplicaMap& replicas) {
  std::vector<SaveAssignment> plan;
  std::set<Rank> stored;  // ranks whose objects some entry already stores
  for (const ReplicaMap::Shard& shard : replicas.shards()) {
    const auto first = [&](bool fit_only) {
      return std::find_if(shard.holders.begin(), shard.holders.end(), [&](Rank holder) {
        const RankFacts& rank = incident.At(holder);
        return rank.condition == Condition::kGood && (rank.can_write || !fit_only);
      });
    };
    const auto fit = first(true);
    const auto good = fit != shard.holders.end() ? fit : first(false);
    KINTSUGI_CHECK(good != shard.holders.end(), "a save needs an intact holder of every shard");
    SaveAssignment assignment{*good, {shard.layout, shard.holders, {}}};
    for (Rank holder : shard.holders)
      if (stored.insert(holder).second) assignment.entry.objects_of.push_back(holder);
    plan.push_back(std::move(assignment));
  }
  return plan;
}

}  // namespace kintsugi::core
