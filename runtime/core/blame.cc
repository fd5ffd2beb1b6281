#include "runtime/core/blame.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace kintsugi::core {
namespace {

constexpr size_t kNamedMost = 4;
constexpr size_t kStacksMost = 8;
constexpr size_t kFramesMost = 6;
// So many calls before one are compared with what was done earlier.
constexpr size_t kHabitMost = 16;
// So many of its newest calls show whether a rank left a message out: fewer than are kept of messages.
constexpr size_t kLatelyMost = 8;

using Call = std::tuple<CollectiveKind, uint32_t, uint64_t, int32_t, uint32_t, uint32_t>;
Call CallOf(const CollectiveMark& mark) {
  return {mark.kind, mark.type, mark.size, mark.root.value(), mark.operation, mark.parts};
}

// Equal on all members.
using GroupKey = std::pair<std::string, std::vector<Rank>>;

struct Group {
  const GroupKey* key = nullptr;
  std::map<Rank, const GroupMarks*> of;  // members that answered

  const std::vector<Rank>& ranks() const { return key->second; }
  std::string Name() const { return "group " + key->first; }
};

struct Scene {
  explicit Scene(const BlameQuestion& question) : asked(question) {
    for (const RankSaid& said : asked.ranks) {
      by_rank[said.rank] = &said;
      if (!said.marks) continue;
      for (const GroupMarks& marks : said.marks->groups) {
        const auto found = groups.try_emplace({marks.name, marks.ranks}).first;
        found->second.key = &found->first;
        found->second.of[said.rank] = &marks;
      }
    }
  }
  const RankSaid* At(Rank rank) const {
    const auto found = by_rank.find(rank);
    return found == by_rank.end() ? nullptr : found->second;
  }
  bool IsOpen(const CollectiveMark& mark) const {
    return mark.end == CollectiveEnd::kOpen && mark.entered >= asked.least;
  }

  const BlameQuestion& asked;
  std::map<Rank, const RankSaid*> by_rank;
  std::map<GroupKey, Group> groups;
};

// ---- words -------------------------------------------------------------------------------------------------------------

std::string Tenths(Duration duration) {
  const int64_t tenths = duration.count() / 100'000'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

std::string Named(const std::vector<Rank>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(kNamedMost, ranks.size()); ++i) text += (i > 0 ? ", " : "") + ranks[i].ToString();
  if (ranks.size() > kNamedMost) text += " and " + std::to_string(ranks.size() - kNamedMost) + " more";
  return text;
}

std::string CallText(const CollectiveMark& mark) {
  return std::string(CollectiveName(mark.kind)) + " " + std::to_string(mark.number);
}

std::string WholeCall(const CollectiveMark& mark) {
  std::string text = CallText(mark);
  if (mark.size > 0) text += " of " + std::to_string(mark.size) + " " + std::string(ElementName(mark.type));
  if (mark.root.value() >= 0) text += " from place " + mark.root.ToString();
  return text;
}

std::string StandText(const RankSaid& said) {
  if (!said.marks) return "";
  const Stand& stand = said.marks->stand;
  std::string text;
  if (stand.python_stopped) text += "; its Python stands still: nobody gets its lock";
  if (stand.state == "T" || stand.state == "t") text += "; its process is stopped, by a signal or a debugger";
  if (stand.state == "D") text += "; its thread hangs in the kernel";
  if (!stand.at.empty() || !stand.call.empty()) text += "; it stands in " + (stand.at.empty() ? stand.call : stand.at);
  if (!stand.at.empty() && !stand.call.empty()) text += ", " + stand.call;
  return text;
}

// ---- habits ------------------------------------------------------------------------------------------------------------

// What came next where the same calls stood before the last one, the longest such stretch; nothing: that never was.
template <typename T>
std::optional<bool> KeepsHabit(const std::vector<T>& calls) {
  if (calls.size() < 3) return std::nullopt;
  const size_t last = calls.size() - 1;
  size_t longest = 0, at = 0;
  for (size_t i = last - 1; i > 0; --i) {
    size_t alike = 0;
    while (alike < std::min(kHabitMost, i) && calls[i - 1 - alike] == calls[last - 1 - alike]) ++alike;
    if (alike > longest) longest = alike, at = i;
  }
  if (longest == 0) return std::nullopt;
  return calls[at] == calls[last];
}

// Of several sides, those that leave what they did before, where others keep to it.
template <typename Keeps>
std::vector<Rank> WhoLeftHabit(const std::vector<Rank>& ranks, const Keeps& keeps) {
  std::vector<Rank> left;
  bool any_keeps = false;
  for (Rank rank : ranks) {
    const std::optional<bool> kept = keeps(rank);
    if (!kept) return {};
    if (*kept)
      any_keeps = true;
    else
      left.push_back(rank);
  }
  return any_keeps ? left : std::vector<Rank>{};
}

// ---- what differs ------------------------------------------------------------------------------------------------------

struct Difference {
  const Group* group = nullptr;
  std::vector<std::pair<Rank, const CollectiveMark*>> at;  // ascending
  Duration age{};
};

std::optional<Difference> FindDifference(const Scene& scene, const Group& group) {
  std::map<uint64_t, std::vector<std::pair<Rank, const CollectiveMark*>>> by_number;
  std::optional<uint64_t> first;  // that is not over everywhere
  for (const auto& [rank, marks] : group.of)
    for (const CollectiveMark& mark : marks->newest) {
      if (IsPointToPoint(mark.kind)) continue;
      by_number[mark.number].emplace_back(rank, &mark);
      if (mark.end == CollectiveEnd::kFailed || scene.IsOpen(mark))
        first = std::min(first.value_or(mark.number), mark.number);
    }
  if (!first) return std::nullopt;
  for (auto found = by_number.lower_bound(*first); found != by_number.end(); ++found) {
    const auto& at = found->second;
    if (std::all_of(at.begin(), at.end(),
                    [&](const auto& one) { return CallOf(*one.second) == CallOf(*at[0].second); }))
      continue;
    Difference difference{&group, at, {}};
    for (const auto& [rank, mark] : at) difference.age = std::max(difference.age, mark->entered);
    return difference;
  }
  return std::nullopt;
}

// Where something broke: the newest call that all who answered have come to. A library may have taken it for over (a message of fewer bytes
// than are awaited), and what it gave is what then failed.
std::optional<Difference> FindDifferenceBehind(const Group& group) {
  std::optional<uint64_t> newest;
  for (const auto& [rank, marks] : group.of) newest = std::min(newest.value_or(marks->entered), marks->entered);
  Difference difference{&group, {}, {}};
  for (const auto& [rank, marks] : group.of)
    for (const CollectiveMark& mark : marks->newest)
      if (mark.number == newest && !IsPointToPoint(mark.kind)) {
        difference.at.emplace_back(rank, &mark);
        difference.age = std::max(difference.age, mark.entered);
      }
  const auto& at = difference.at;
  if (at.size() != group.ranks().size()) return std::nullopt;
  if (std::all_of(at.begin(), at.end(), [&](const auto& one) { return CallOf(*one.second) == CallOf(*at[0].second); }))
    return std::nullopt;
  return difference;
}

std::optional<bool> KeepsHabitIn(const GroupMarks& marks, uint64_t number) {
  std::map<uint64_t, Call> calls;
  for (const CollectiveMark& mark : marks.newest)
    if (!IsPointToPoint(mark.kind) && mark.number <= number) calls[mark.number] = CallOf(mark);
  std::vector<Call> in_order;
  for (const auto& [at, call] : calls) in_order.push_back(call);
  return KeepsHabit(in_order);
}

BlameKind KindOf(const CollectiveMark& one, const CollectiveMark& other) {
  if (one.kind != other.kind) return BlameKind::kOtherKind;
  if (one.type != other.type) return BlameKind::kOtherType;
  if (one.size != other.size || one.parts != other.parts) return BlameKind::kOtherSize;
  if (one.root != other.root) return BlameKind::kOtherRoot;
  return BlameKind::kOtherKind;
}

Blame BlameDifference(const Scene& scene, const Difference& difference) {
  std::map<Call, std::vector<Rank>> sides;
  std::map<Call, const CollectiveMark*> marks;
  std::vector<Rank> all;
  for (const auto& [rank, mark] : difference.at) {
    sides[CallOf(*mark)].push_back(rank);
    marks[CallOf(*mark)] = mark;
    all.push_back(rank);
  }
  auto most = sides.begin();
  for (auto side = sides.begin(); side != sides.end(); ++side)
    if (side->second.size() > most->second.size()) most = side;
  const bool tied = std::any_of(sides.begin(), sides.end(), [&](const auto& side) {
    return side.first != most->first && side.second.size() == most->second.size();
  });
  Blame blame;
  if (tied) {
    const uint64_t number = difference.at[0].second->number;
    blame.ranks = WhoLeftHabit(all, [&](Rank rank) { return KeepsHabitIn(*difference.group->of.at(rank), number); });
    for (auto side = sides.begin(); side != sides.end() && !blame.ranks.empty(); ++side)
      if (!std::count(blame.ranks.begin(), blame.ranks.end(), side->second.front())) most = side;
  } else {
    for (const auto& [call, ranks] : sides)
      if (call != most->first) blame.ranks.insert(blame.ranks.end(), ranks.begin(), ranks.end());
    std::sort(blame.ranks.begin(), blame.ranks.end());
  }
  const auto other =
      std::find_if(sides.begin(), sides.end(), [&](const auto& side) { return side.first != most->first; });
  blame.kind = KindOf(*marks[other->first], *marks[most->first]);
  blame.text = Named(other->second) + (other->second.size() == 1 ? " is in " : " are in ") +
               WholeCall(*marks[other->first]) + " of " + difference.group->Name() + ", " + Named(most->second) +
               " in " + WholeCall(*marks[most->first]);
  if (blame.ranks.empty()) blame.text += "; which of them is wrong cannot be told";
  const RankSaid* const said = scene.At(other->second.front());
  if (said && scene.asked.waits) blame.text += StandText(*said);
  return blame;
}

// ---- who keeps whom waiting --------------------------------------------------------------------------------------------

struct Wait {
  std::string what;           // "all_reduce 812 of group dp"
  std::vector<Rank> within;   // wait there, ascending
  std::vector<Rank> missing;  // have not come
  Duration age{};
  const Group* group = nullptr;  // null: the gate
  bool message = false;          // between two of its members
};

bool Has(const std::vector<Rank>& ranks, Rank rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// A rank that said nothing may be anywhere; only where it gives no sign of life it counts as one that does not come.
bool IsMissing(const Scene& scene, const Group& group, Rank member, uint64_t number) {
  const RankSaid* const said = scene.At(member);
  if (!said) return false;
  if (!said->marks) return said->silent;
  const auto found = group.of.find(member);
  return found == group.of.end() || found->second->entered < number;
}

std::optional<Wait> WaitIn(const Scene& scene, const Group& group) {
  const CollectiveMark* first = nullptr;
  for (const auto& [rank, marks] : group.of)
    for (const CollectiveMark& mark : marks->newest)
      if (!IsPointToPoint(mark.kind) && scene.IsOpen(mark) && (!first || mark.number < first->number)) first = &mark;
  if (!first) return std::nullopt;
  Wait wait{CallText(*first) + " of " + group.Name(), {}, {}, {}, &group};
  for (const auto& [rank, marks] : group.of)
    for (const CollectiveMark& mark : marks->newest)
      if (mark.number == first->number && !IsPointToPoint(mark.kind) && scene.IsOpen(mark)) {
        wait.within.push_back(rank);
        wait.age = std::max(wait.age, mark.entered);
      }
  for (Rank member : group.ranks())
    if (IsMissing(scene, group, member, first->number)) wait.missing.push_back(member);
  return wait;
}

// A receive that a thread waits in, of a member that is in no send to it.
void AddReceives(const Scene& scene, const Group& group, std::vector<Wait>* waits) {
  for (const auto& [rank, marks] : group.of)
    for (const CollectiveMark& mark : marks->newest) {
      if (mark.kind != CollectiveKind::kReceive || !mark.waited || !scene.IsOpen(mark)) continue;
      const auto place = static_cast<size_t>(mark.root.value());
      if (mark.root.value() < 0 || place >= group.ranks().size()) continue;
      const Rank peer = group.ranks()[place];
      const RankSaid* const said = scene.At(peer);
      if (!said || (!said->marks && !said->silent)) continue;
      const auto theirs = group.of.find(peer);
      bool sends = false;
      if (theirs != group.of.end())
        for (const CollectiveMark& other : theirs->second->newest)
          sends |= other.kind == CollectiveKind::kSend && other.end == CollectiveEnd::kOpen &&
                   other.root.value() >= 0 && static_cast<size_t>(other.root.value()) < group.ranks().size() &&
                   group.ranks()[static_cast<size_t>(other.root.value())] == rank;
      if (!sends)
        waits->push_back(
            {"the message of " + CallText(mark) + " in " + group.Name(), {rank}, {peer}, mark.entered, &group, true});
    }
}

bool IsAtGate(const RankSaid& said) {
  return said.marks && said.marks->place.phase == TrainPhase::kGate && !said.finished && !said.parked;
}

std::optional<Wait> WaitAtGate(const Scene& scene) {
  uint64_t step = 0;
  for (const RankSaid& said : scene.asked.ranks)
    if (IsAtGate(said)) step = std::max(step, said.marks->place.step);
  if (step == 0) return std::nullopt;
  Wait wait{"the gate of step " + std::to_string(step), {}, {}, {}, nullptr};
  for (const RankSaid& said : scene.asked.ranks) {
    if (said.parked) return std::nullopt;  // a save point, or a pause, is about to hold all
    const bool before = said.marks && (said.marks->place.step < step ||
                                       (said.marks->place.step == step &&
                                        (!said.marks->place.phase || *said.marks->place.phase < TrainPhase::kGate)));
    if (IsAtGate(said) && said.marks->place.step == step)
      wait.within.push_back(said.rank);
    else if (before || said.finished || (!said.marks && said.silent))
      wait.missing.push_back(said.rank);
  }
  return wait;
}

std::vector<Wait> FindWaits(const Scene& scene) {
  std::vector<Wait> waits;
  for (const auto& [key, group] : scene.groups)
    if (auto wait = WaitIn(scene, group)) waits.push_back(std::move(*wait));
  for (const auto& [key, group] : scene.groups) AddReceives(scene, group, &waits);
  if (auto gate = WaitAtGate(scene)) waits.push_back(std::move(*gate));
  return waits;
}

std::string MissingText(const Scene& scene, Rank rank, const Wait& wait) {
  const RankSaid& said = *scene.At(rank);
  std::string text = "rank " + rank.ToString() + " has not come to " + wait.what + ", where " + Named(wait.within) +
                     (wait.within.size() == 1 ? " waits" : " wait");
  if (wait.age > Duration()) text += " for " + Tenths(wait.age);
  if (said.finished) return text + "; its loop has ended after step " + said.finished->ToString();
  if (said.ended) return text + "; its process has ended";
  if (!said.marks) return text + "; it gives no sign of life: its process is stopped, or its host is not to be reached";
  return text + StandText(said);
}

bool StandsStill(const RankSaid& said) {
  if (!said.marks) return false;
  const Stand& stand = said.marks->stand;
  return stand.python_stopped || stand.state == "T" || stand.state == "t" || stand.state == "D";
}

// In a collective, however short: whoever has just come was late, and waits now.
std::set<Rank> WhoIsWithin(const Scene& scene) {
  std::set<Rank> within;
  for (const auto& [key, group] : scene.groups)
    for (const auto& [rank, marks] : group.of)
      for (const CollectiveMark& mark : marks->newest)
        if (mark.end == CollectiveEnd::kOpen && (!IsPointToPoint(mark.kind) || mark.waited)) within.insert(rank);
  return within;
}

std::optional<Blame> BlameMissing(const Scene& scene, const std::vector<Wait>& waits) {
  std::set<Rank> waiting = WhoIsWithin(scene);
  for (const Wait& wait : waits) waiting.insert(wait.within.begin(), wait.within.end());
  std::map<Rank, const Wait*> roots;
  for (const Wait& wait : waits)
    for (Rank rank : wait.missing)
      if (!waiting.count(rank) && !(scene.At(rank)->parked)) roots.emplace(rank, &wait);
  if (roots.empty()) return std::nullopt;
  Blame blame;
  for (const auto& [rank, wait] : roots) {
    blame.ranks.push_back(rank);
    if (blame.ranks.size() > kNamedMost) continue;
    if (!blame.text.empty()) blame.text += ". ";
    blame.text += MissingText(scene, rank, *wait);
  }
  const RankSaid& first = *scene.At(blame.ranks.front());
  blame.kind = StandsStill(first)              ? BlameKind::kStopped
               : first.marks || first.finished ? BlameKind::kMissing
                                               : BlameKind::kNoAnswer;
  return blame;
}

// All that this rank entered, of whatever group, as it went; the last is where it waits in `within` (null: the gate). `looked_at`: so many of the last.
std::optional<bool> KeepsOrder(const Scene& scene, Rank rank, const Group* within, size_t looked_at) {
  std::map<uint64_t, std::pair<const GroupKey*, Call>> by_order;
  std::optional<uint64_t> open;
  for (const auto& [key, group] : scene.groups) {
    const auto found = group.of.find(rank);
    if (found == group.of.end()) continue;
    for (const CollectiveMark& mark : found->second->newest) {
      by_order[mark.order] = {&key, CallOf(mark)};
      if (&group == within && scene.IsOpen(mark)) open = std::min(open.value_or(mark.order), mark.order);
    }
  }
  if (!open && within) return std::nullopt;
  std::vector<std::pair<const GroupKey*, Call>> calls;
  for (const auto& [order, call] : by_order)
    if (!open || order <= *open) calls.push_back(call);
  std::optional<bool> kept = KeepsHabit(calls);
  for (size_t i = 1; i < looked_at && kept == true && calls.size() > 1; ++i) {
    calls.pop_back();
    if (KeepsHabit(calls) == false) kept = false;
  }
  return kept;
}

std::vector<Rank> Both(const std::vector<Rank>& one, const std::vector<Rank>& other) {
  std::vector<Rank> both;
  for (Rank rank : one)
    if (Has(other, rank)) both.push_back(rank);
  return both;
}

// Each of two groups has members within that the other one misses; or a group and the gate, or a message, where somebody
// left a collective out, or has one more. Fewer differ from more.
std::optional<Blame> BlameOrder(const Scene& scene, const std::vector<Wait>& waits) {
  for (const Wait& one : waits)
    for (const Wait& other : waits) {
      if (&one >= &other) continue;
      const std::vector<Rank> here = Both(one.within, other.missing), there = Both(other.within, one.missing);
      if (here.empty() || there.empty()) continue;
      Blame blame;
      blame.kind = BlameKind::kOtherOrder;
      // Only two are in a message, and who left one out has gone on since.
      const bool message = one.message || other.message;
      if (!message && one.within.size() != other.within.size()) {
        blame.ranks = one.within.size() < other.within.size() ? here : there;
      } else {
        std::vector<Rank> all = here;
        all.insert(all.end(), there.begin(), there.end());
        std::sort(all.begin(), all.end());
        blame.ranks = WhoLeftHabit(all, [&](Rank rank) -> std::optional<bool> {
          const Group* const within = Has(here, rank) ? one.group : other.group;
          return within || message ? KeepsOrder(scene, rank, within, message ? kLatelyMost : 1) : std::nullopt;
        });
      }
      const bool swap = !blame.ranks.empty() && Has(there, blame.ranks.front());
      const Wait& first = swap ? other : one;
      const Wait& second = swap ? one : other;
      const std::vector<Rank>& they = swap ? there : here;
      blame.text = Named(they) + (they.size() == 1 ? " is in " : " are in ") + first.what + " before " + second.what +
                   ", " + Named(swap ? here : there) + " the other way round";
      if (blame.ranks.empty()) blame.text += "; which of them is wrong cannot be told";
      if (const RankSaid* const said = scene.At(they.front())) blame.text += StandText(*said);
      return blame;
    }
  return std::nullopt;
}

std::optional<Blame> BlameNobody(const Scene& scene, const std::vector<Wait>& waits) {
  for (const Wait& wait : waits) {
    if (!wait.group || !wait.missing.empty()) continue;
    const bool all_said = std::all_of(wait.group->ranks().begin(), wait.group->ranks().end(), [&](Rank rank) {
      const RankSaid* const said = scene.At(rank);
      return said && said->marks;
    });
    if (!all_said) continue;
    Blame blame;
    blame.kind = BlameKind::kNotLeft;
    blame.text = "all members have come to " + wait.what + ", and " + Named(wait.within) +
                 (wait.within.size() == 1 ? " does" : " do") + " not come out: the network between them, or a device";
    return blame;
  }
  return std::nullopt;
}

// ---- stacks ------------------------------------------------------------------------------------------------------------

std::vector<FoldedStack> Fold(const Scene& scene) {
  std::map<std::string, std::vector<Rank>> by_text;
  for (const RankSaid& said : scene.asked.ranks) {
    if (!said.marks || said.marks->stand.stack.empty()) continue;
    std::string text;
    const auto& stack = said.marks->stand.stack;
    for (size_t i = 0; i < std::min(kFramesMost, stack.size()); ++i) text += (i > 0 ? " < " : "") + stack[i];
    by_text[text].push_back(said.rank);
  }
  std::vector<FoldedStack> folded;
  for (auto& [text, ranks] : by_text) folded.push_back({std::move(ranks), text});
  // The fewest first: they are those that differ.
  std::stable_sort(folded.begin(), folded.end(),
                   [](const FoldedStack& a, const FoldedStack& b) { return a.ranks.size() < b.ranks.size(); });
  if (folded.size() > kStacksMost) folded.resize(kStacksMost);
  return folded;
}

Blame Judge(const Scene& scene) {
  std::optional<Difference> oldest;
  for (const auto& [key, group] : scene.groups)
    if (auto found = FindDifference(scene, group); found && (!oldest || oldest->age < found->age))
      oldest = std::move(found);
  if (!oldest && !scene.asked.waits)
    for (const auto& [key, group] : scene.groups)
      if (auto found = FindDifferenceBehind(group); found && (!oldest || oldest->age < found->age))
        oldest = std::move(found);
  if (oldest) return BlameDifference(scene, *oldest);
  if (!scene.asked.waits) return {};
  const std::vector<Wait> waits = FindWaits(scene);
  if (auto blame = BlameMissing(scene, waits)) return std::move(*blame);
  if (auto blame = BlameOrder(scene, waits)) return std::move(*blame);
  if (auto blame = BlameNobody(scene, waits)) return std::move(*blame);
  return {};
}

}  // namespace

Blame FindBlame(const BlameQuestion& asked) {
  const Scene scene(asked);
  Blame blame = Judge(scene);
  if (blame.kind != BlameKind::kNone) blame.stacks = Fold(scene);
  return blame;
}

}  // namespace kintsugi::core
