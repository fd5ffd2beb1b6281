#include "runtime/core/survey.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

// So often is a process of one rank started only to save what is held of it.
constexpr int kRescuesMax = 2;
// So often is the state cut anew in one incident in vain.
constexpr int kRelayoutsMax = 3;

// Of the layouts that the rank holds, those that a damaged tensor is of: all, where its registry does not say.
std::vector<int> LayoutsOf(const RegistrySummary& registry, const std::string& key, std::vector<int> held) {
  for (const TensorSummary& tensor : registry.tensors)
    if (tensor.key == key) return {tensor.layout};
  return held;
}

// A new process has no state yet: for the choice of rung its predecessor's process is what was lost.
Condition ConditionOf(const Member& member) {
  if (member.life != Life::kReady || member.trust.fresh()) return Condition::kGone;
  if (!member.trust.needs_repair()) return Condition::kGood;
  return member.trust.is_damaged_only() ? Condition::kDamaged : Condition::kTorn;
}

// What keeps a piece that one rank alone holds.
std::string Remedy(const IncidentFacts& facts) {
  return facts.no_snapshot.empty() ? ": --snapshot-every N keeps a copy of it on another rank"
                                   : ", and " + facts.no_snapshot + ": resume from the newest checkpoint";
}

}  // namespace

std::string Survey::Leaving() const {
  if (!repeats_.hopeless().empty()) return repeats_.hopeless();
  if (!board_.course.given_up.empty()) return board_.course.given_up;
  if (board_.majority.minority()) return "no majority of the ranks answers: save and leave";
  return board_.course.leaving ? "a stop was asked for: save and leave" : "";
}

RankFacts Survey::Of(Rank rank) const {
  const Member& member = board_.At(rank);
  RankFacts seen;
  seen.rank = rank;
  seen.condition = ConditionOf(member);
  seen.respawns_left = board_.policy.max_respawns - member.respawns;
  seen.rescues_left = kRescuesMax - member.rescues;
  KINTSUGI_CHECK(seen.respawns_left >= 0 && seen.rescues_left >= 0,
                 "rank " + rank.ToString() + " was replaced more often than it may be");
  seen.start_failure = member.start_failure;
  seen.replacement_started = member.life != Life::kDead;
  seen.held = member.trust.held();
  seen.absent = member.absent;
  seen.spare_takes_over = member.from_spare;
  for (const std::string& key : member.trust.damaged_keys())
    for (int layout : LayoutsOf(member.registry, key, board_.replicas().LayoutsOf(rank)))
      seen.damaged[layout].push_back(key);
  seen.objects_ahead = member.objects_ahead;
  seen.can_write = !member.save_failed;
  return seen;
}

Result<OfferedWorlds> Survey::Offered() const {
  return OfferedBy(board_.members.crew(), [this](Rank rank) {
    const Member& member = board_.At(rank);
    return member.registered ? &member.offer : nullptr;
  });
}

bool Survey::OffersAnyLayout() const {
  const Result<OfferedWorlds> offered = Offered();
  return offered.ok() && offered->any_layout;
}

// A controller that takes over could not tell yet which of two registrations counts.
std::string Survey::WhyNoRelayout() const {
  if (board_.policy.needs_consent || board_.policy.takes_over) return "state is cut anew in runs on one host alone";
  if (!board_.registered.gone().empty()) return "tensors were unregistered: what is left is not cut anew";
  if (board_.plan.relayouts_failed >= kRelayoutsMax)
    return "the state could not be cut anew " + std::to_string(kRelayoutsMax) +
           " times, last: " + board_.plan.relayout_failure;
  return "";
}

RungReason Survey::WhyNotWithin(const Crew& crew) const {
  const auto refused = [](Refusal reason, std::string why) {
    return RungReason{Rung::kShrink, reason, std::move(why)};
  };
  if (OffersAnyLayout()) {
    if (std::string why = WhyNoRelayout(); !why.empty()) return refused(Refusal::kBytesWouldMove, std::move(why));
  } else {
    const Result<ReplicaMap> map = board_.registered.MapOf(board_.members, crew, board_.policy.takes_over);
    if (!map.ok()) return refused(Refusal::kBytesWouldMove, map.status().message());
    for (const ReplicaMap::Shard& shard : board_.replicas().shards())
      if (std::none_of(shard.holders.begin(), shard.holders.end(), [&](Rank holder) { return crew.Has(holder); }))
        return refused(Refusal::kBytesWouldMove, "layout " + std::to_string(shard.layout) + " of rank " +
                                                     shard.holders.front().ToString() +
                                                     " is held by none of those that would stay");
  }
  if (!board_.majority.HasWithout(board_.members, crew, board_.now()))
    return refused(Refusal::kNoMajorityStays, "those that would stay, " + crew.ToString() + ", are no majority");
  return {Rung::kShrink, Refusal::kChosen, ""};
}

// Whose node stays away is done without where that is possible at all, and else waited for.
SmallerWorld Survey::FindSmaller(const IncidentFacts& facts) const {
  const std::vector<Rank> lost = facts.LostForGood(false), gone = facts.LostForGood(true);
  SmallerWorld smaller = FindWithout(gone, facts);
  return smaller.crew || gone == lost ? smaller : FindWithout(lost, facts);
}

SmallerWorld Survey::FindWithout(const std::vector<Rank>& lost, const IncidentFacts& facts) const {
  const Roster& members = board_.members;
  const auto refused = [](Refusal reason, std::string why) {
    return SmallerWorld{std::nullopt, reason, std::move(why)};
  };
  const Result<OfferedWorlds> slices = Offered();
  if (!slices.ok()) return refused(Refusal::kNotOffered, slices.status().message());
  if (slices->all.empty()) return {};
  if (!board_.policy.shrinks) return refused(Refusal::kForbidden, "a smaller world is forbidden (Policy::shrinks)");
  if (lost.empty()) return refused(Refusal::kNobodyLostForGood, "no rank is lost for good");
  const std::string why_lost = "rank " + lost.front().ToString() +
                               (lost.size() > 1 ? " and " + std::to_string(lost.size() - 1) + " more are" : " is") +
                               (facts.At(lost.front()).absent ? " on a node that stays away" : " lost for good");
  // Where state is cut anew nothing is repaired or adopted: the pieces come from those whose state is whole, also where they leave.
  const std::string lacks = slices->any_layout ? LacksPiece(facts) : "";
  const bool goes_back = !lacks.empty() && facts.snapshot;
  std::vector<Rank> without = lost;
  // Who has no copy of its own has no objects of the step to which all go back.
  for (const RankFacts& each : facts.ranks)
    if (goes_back && !each.has_snapshot && !std::count(lost.begin(), lost.end(), each.rank))
      without.push_back(each.rank);
  const Result<Crew> crew = ChooseSmaller(members.crew(), *slices, without,
                                          [&facts](Rank rank) { return facts.At(rank).condition != Condition::kGood; });
  if (!crew.ok()) return refused(Refusal::kNotOffered, crew.status().message());
  if (RungReason why = WhyNotWithin(*crew); why.reason != Refusal::kChosen)
    return refused(why.reason, std::move(why.text));
  if (!lacks.empty() && !goes_back) return refused(Refusal::kNoSource, lacks + Remedy(facts));
  if (goes_back)
    return {*crew, Refusal::kChosen,
            "back to the in-memory snapshot of step " + facts.snapshot->ToString() + ", and on with " +
                crew->ToString() + ": " + lacks + ", and " + why_lost,
            facts.snapshot};
  if (!slices->any_layout &&
      LacksState(facts.Within(*crew), *board_.registered.MapOf(members, *crew, board_.policy.takes_over)))
    return refused(Refusal::kNoSource, "those that would stay do not hold every shard at one step");
  return {*crew, Refusal::kChosen, "on with " + crew->ToString() + ": every shard is held by them, and " + why_lost};
}

std::string Survey::LacksPiece(const IncidentFacts& facts) const {
  const auto lacks = [this](int layout, Rank rank) {
    std::string what = "layout " + std::to_string(layout);
    for (const TensorSummary& tensor : board_.At(rank).registry.tensors)
      if (tensor.layout == layout) {
        what = Describe(tensor);
        break;
      }
    return "no rank that lives holds " + what + " of rank " + rank.ToString();
  };
  if (const auto& lack = facts.step.lack; lack && !facts.step.step)
    return lacks(lack->layout, lack->rank) + " at step " + lack->step.ToString();
  for (const ReplicaMap::Shard& shard : board_.replicas().shards())
    if (!facts.step.step || std::none_of(shard.holders.begin(), shard.holders.end(),
                                         [&](Rank holder) { return facts.At(holder).condition == Condition::kGood; }))
      return lacks(shard.layout, shard.holders.front());
  return "";
}

bool Survey::CanDoWithout(const std::vector<Rank>& ranks) const {
  IncidentFacts facts = Take();
  if (!facts.leaving.empty()) return false;
  for (Rank rank : ranks) facts.At(rank).absent = true;
  const SmallerWorld smaller = FindWithout(facts.LostForGood(true), facts);
  return smaller.crew.has_value();
}

IncidentFacts Survey::Take() const {
  const RepairPlan& plan = board_.plan;
  IncidentFacts facts;
  facts.step = plan.choice;
  if (plan.choice.step && plan.IsSuspect(*plan.choice.step)) facts.suspect_from = plan.suspect_from;
  facts.save_possible = !board_.policy.save_directory.empty();
  facts.leaving = Leaving();
  if (board_.policy.verify_every > 0) facts.compared = comparison_.agreed_step();
  facts.ranks.reserve(board_.members.crew().size());
  for (Rank rank : board_.members.ranks()) facts.ranks.push_back(Of(rank));
  return facts;
}

}  // namespace kintsugi::core
