#include "tools/watch/world.h"

#include <algorithm>
#include <utility>

#include "runtime/agent/lookout.h"
#include "runtime/base/log.h"
#include "runtime/controller/incident_line.h"

namespace kintsugi::watch {
namespace {

// So long Python may take to give its lock away, and to write a traceback.
constexpr Duration kStandsFor = std::chrono::milliseconds(250);
// Whoever entered a collective more recently may meet the others yet.
constexpr Duration kLeastWait = std::chrono::milliseconds(500);
// Between two looks of ours; more: this process, or the whole machine, was stopped.
constexpr Duration kGapMost = std::chrono::milliseconds(700);
// Others hear of a rank that is gone, and of a collective that failed.
constexpr Duration kBreaksFor = std::chrono::milliseconds(300);

uint64_t Nanoseconds(TimePoint at) { return static_cast<uint64_t>(at.nanoseconds()); }

std::string List(const std::vector<Rank>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ", " : "") + ranks[i].ToString();
  return text;
}

std::string Tenths(Duration duration) {
  const int64_t tenths = duration.count() / 100'000'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

std::string CallText(const CollectiveMarks::Mark& mark, const std::string& group) {
  return std::string(CollectiveName(mark.call.kind)) + " " + std::to_string(mark.number) + " of group " + group;
}

// Of sends and receives those alone that a thread waits in: they may be posted long before.
bool MayBeWait(const CollectiveMarks::Mark& mark) { return !IsPointToPoint(mark.call.kind) || mark.waited; }

// What its groups did. Of one that nobody waits for no end is seen: it was there before a later one of its group was.
std::vector<core::GroupMarks> MarksOf(const WatchedRank& rank, TimePoint now) {
  std::vector<core::GroupMarks> groups = GroupMarksOf(rank.marks(), rank.rank(), now);
  for (core::GroupMarks& group : groups) {
    uint64_t over = 0;
    for (const core::CollectiveMark& mark : group.newest)
      if (mark.end == core::CollectiveEnd::kDone && !IsPointToPoint(mark.kind)) over = std::max(over, mark.number);
    for (core::CollectiveMark& mark : group.newest)
      if (mark.end == core::CollectiveEnd::kOpen && !IsPointToPoint(mark.kind) && mark.number < over)
        mark.end = core::CollectiveEnd::kDone;
  }
  return groups;
}

bool HasOpen(const core::RankMarks& marks) {
  for (const core::GroupMarks& group : marks.groups)
    for (const core::CollectiveMark& mark : group.newest)
      if (mark.end == core::CollectiveEnd::kOpen && (!IsPointToPoint(mark.kind) || mark.waited)) return true;
  return false;
}

core::Stand StandOf(ProcessStand stand) {
  return {std::move(stand.at), std::move(stand.call), std::move(stand.state), stand.python_stopped,
          std::move(stand.stack)};
}

}  // namespace

void WatchedWorld::Add(std::unique_ptr<WatchedRank> rank) {
  const auto found = ranks_.find(rank->rank());
  if (found != ranks_.end() && !found->second->IsGone()) {
    trouble_.push_back("processes " + std::to_string(found->second->pid()) + " and " + std::to_string(rank->pid()) +
                       " both are rank " + rank->rank().ToString() + " of one world: the second is not watched");
    return;
  }
  world_size_ = rank->world_size();
  ranks_[rank->rank()] = std::move(rank);
}

void WatchedWorld::Learn(const WatchedRank& rank, const CollectiveMarks::GroupView& view) {
  uint64_t& newest = learnt_[{rank.rank(), view.name}];
  if (view.entered < newest) newest = 0;  // the group was made anew
  uint64_t until = newest;
  for (const CollectiveMarks::Mark& mark : view.newest) {
    if (IsPointToPoint(mark.call.kind) || mark.number <= newest || mark.left_ns == 0) continue;
    until = std::max(until, mark.number);
    if (!mark.failed)
      limits_.Learn(view.name, mark.call,
                    Duration(static_cast<int64_t>(mark.left_ns - std::min(mark.entered_ns, mark.left_ns))));
  }
  newest = until;
}

std::optional<WatchedWorld::Wait> WatchedWorld::LongestWait(TimePoint now) {
  std::optional<Wait> longest;
  for (const auto& [number, rank] : ranks_) {
    if (rank->IsGone()) continue;
    // Who has done anything since it entered one does not wait there.
    std::optional<Wait> newest;
    for (const CollectiveMarks::GroupView& view : rank->marks().Read()) {
      Learn(*rank, view);
      for (const CollectiveMarks::Mark& mark : view.newest)
        if (MayBeWait(mark) && (!newest || mark.order > newest->mark.order)) newest = Wait{number, view.name, mark, {}};
    }
    if (!newest || newest->mark.left_ns != 0) continue;
    const uint64_t since = std::max(newest->mark.entered_ns, fresh_since_ns_);
    newest->age = Duration(static_cast<int64_t>(Nanoseconds(now) - std::min(since, Nanoseconds(now))));
    if (newest->age >= limits_.LimitOf(newest->group, newest->mark.call) && (!longest || newest->age > longest->age))
      longest = newest;
  }
  return longest;
}

bool WatchedWorld::IsOver(const Wait& wait) const {
  const auto found = ranks_.find(wait.rank);
  if (found == ranks_.end() || found->second->IsGone()) return true;
  for (const CollectiveMarks::GroupView& view : found->second->marks().Read())
    if (view.name == wait.group)
      for (const CollectiveMarks::Mark& mark : view.newest)
        if (mark.order == wait.mark.order && mark.entered_ns == wait.mark.entered_ns) return mark.left_ns != 0;
  return true;
}

void WatchedWorld::Ask(const Wait& wait, TimePoint now) {
  Question question{wait, {}, {}, now + kStandsFor};
  question.about.least = std::min(kLeastWait, wait.age / 2);
  for (const auto& [number, rank] : ranks_) {
    core::RankSaid said{.rank = number,
                        .marks = core::RankMarks{},
                        .finished = {},
                        .parked = false,
                        .silent = false,
                        .ended = rank->IsGone()};
    said.marks->groups = MarksOf(*rank, now);
    if (said.ended)
      for (core::GroupMarks& group : said.marks->groups)
        for (core::CollectiveMark& mark : group.newest)
          if (mark.end == core::CollectiveEnd::kOpen) mark.end = core::CollectiveEnd::kFailed;
    if (!said.ended) question.readers.try_emplace(number, rank->pid(), rank->marks().memory()).first->second.Begin();
    question.about.ranks.push_back(std::move(said));
  }
  question_ = std::move(question);
}

void WatchedWorld::Answer(std::vector<std::string>* lines) {
  Question question = *std::exchange(question_, std::nullopt);
  for (core::RankSaid& said : question.about.ranks) {
    const auto reader = question.readers.find(said.rank);
    if (reader == question.readers.end()) continue;
    ProcessStand stand = reader->second.Read();
    // It may wait there for whom nobody sees.
    said.parked =
        stand.in_torch && stand.state != "R" && stand.state != "T" && stand.state != "t" && !HasOpen(*said.marks);
    said.marks->stand = StandOf(std::move(stand));
  }
  if (IsOver(question.wait)) return;
  const core::Blame blame = core::FindBlame(question.about);
  if (blame.kind == core::BlameKind::kNone) return TellUnexplained(question.wait, question.about, lines);
  if (!told_ || told_->blame.kind != blame.kind || told_->blame.ranks != blame.ranks) Tell(blame, lines);
  told_ = Told{question.wait, blame};
}

void WatchedWorld::Tell(const core::Blame& blame, std::vector<std::string>* lines) {
  for (std::string& line : HangLines(blame)) lines->push_back(std::move(line));
}

std::string WatchedWorld::Elsewhere() const {
  const size_t others = static_cast<size_t>(world_size_) - std::min(ranks_.size(), static_cast<size_t>(world_size_));
  return others == 0 ? ""
                     : "; " + std::to_string(others) + " of " + std::to_string(world_size_) +
                           " ranks are not seen from here: they are on other hosts, or have no process group yet";
}

// Somebody waits, and it cannot be told for whom.
void WatchedWorld::TellUnexplained(const Wait& wait, const core::BlameQuestion& about,
                                   std::vector<std::string>* lines) {
  std::vector<Rank> within;
  std::string unseen;
  for (const core::RankSaid& said : about.ranks) {
    if (HasOpen(*said.marks)) within.push_back(said.rank);
    if (said.parked)
      unseen += "; rank " + said.rank.ToString() + " stands in " + said.marks->stand.at +
                ", where what it waits for is not seen from Python";
  }
  const std::string what = CallText(wait.mark, wait.group);
  std::string text = List(within) + (within.size() == 1 ? " waits" : " wait") + ", rank " + wait.rank.ToString() +
                     " for " + Tenths(wait.age) + " in " + what;
  text += unseen + Elsewhere();
  if (!said_.insert(what + unseen).second) return;
  lines->push_back(LogLine("hang", {{"why", "unseen"}, {"ranks", "none"}, {"text", text}}));
  if (!told_) told_ = Told{wait, {}};
}

void WatchedWorld::TellWhatGoesOn(TimePoint now, std::vector<std::string>* lines) {
  if (!told_ || broke_ || question_ || !IsOver(told_->wait)) return;
  const auto found = ranks_.find(told_->wait.rank);
  if (found != ranks_.end() && !found->second->IsGone()) {
    const Duration waited(
        static_cast<int64_t>(Nanoseconds(now) - std::min(Nanoseconds(now), told_->wait.mark.entered_ns)));
    lines->push_back(LogLine(
        "hang_over", {{"text", "rank " + told_->wait.rank.ToString() + " has come out of " +
                                   CallText(told_->wait.mark, told_->wait.group) + " after " + Tenths(waited)}}));
  }
  told_.reset();
  said_.clear();
  asked_at_.reset();
}

// ---- what broke --------------------------------------------------------------------------------------------------------

void WatchedWorld::LookForBroken(TimePoint now) {
  for (const auto& [number, rank] : ranks_)
    for (const CollectiveMarks::GroupView& view : rank->marks().Read())
      for (const CollectiveMarks::Mark& mark : view.newest)
        if (mark.failed && mark.left_ns != 0 && (broke_ns_ == 0 || mark.left_ns < broke_ns_)) broke_ns_ = mark.left_ns;
  if (broke_ns_ != 0 && !broke_) broke_ = now;
}

// As things stood when the first collective failed: what was entered since says nothing. Who failed in one was within it; and who had come to its own
// end by then is whom they missed.
core::BlameQuestion WatchedWorld::AskWhatBroke(TimePoint now) const {
  core::BlameQuestion about;
  const Duration since_broke(static_cast<int64_t>(Nanoseconds(now) - std::min(Nanoseconds(now), broke_ns_)));
  for (const auto& [number, rank] : ranks_) {
    core::RankSaid said{
        .rank = number, .marks = core::RankMarks{}, .finished = {}, .parked = false, .silent = false, .ended = false};
    said.marks->groups = MarksOf(*rank, now);
    said.ended = rank->ended_ns() != 0 && (broke_ns_ == 0 || rank->ended_ns() < broke_ns_);
    for (core::GroupMarks& group : said.marks->groups) {
      std::erase_if(group.newest,
                    [&](const core::CollectiveMark& mark) { return broke_ns_ != 0 && mark.entered < since_broke; });
      for (core::CollectiveMark& mark : group.newest)
        if (!said.ended && mark.end == core::CollectiveEnd::kFailed) mark.end = core::CollectiveEnd::kOpen;
    }
    said.parked = !said.ended;
    about.ranks.push_back(std::move(said));
  }
  return about;
}

void WatchedWorld::TellBroken(TimePoint now, std::vector<std::string>* lines) {
  told_broken_ = true;
  if (told_ && told_->blame.kind != core::BlameKind::kNone) return;  // it was said before it broke
  core::BlameQuestion about = AskWhatBroke(now);
  about.waits = false;
  core::Blame blame = core::FindBlame(about);
  about.waits = true;
  if (blame.kind == core::BlameKind::kNone) {
    // Who is within by then need not wait there: only that somebody has gone says something.
    blame = core::FindBlame(about);
    if (blame.kind != core::BlameKind::kMissing) return;
  }
  Tell(blame, lines);
}

// ------------------------------------------------------------------------------------------------------------------------

std::vector<std::string> WatchedWorld::Look(TimePoint now) {
  std::vector<std::string> lines;
  for (const std::string& text : std::exchange(trouble_, {})) lines.push_back(LogLine("watch", {{"text", text}}));
  if (!looked_ || now - *looked_ > kGapMost) fresh_since_ns_ = Nanoseconds(now);
  looked_ = now;
  LookForBroken(now);
  if (broke_ && !told_broken_ && now - *broke_ >= kBreaksFor) TellBroken(now, &lines);
  if (question_) {
    if (now >= question_->until) Answer(&lines);
    return lines;
  }
  TellWhatGoesOn(now, &lines);
  if (broke_) return lines;
  const std::optional<Wait> wait = LongestWait(now);
  if (!wait) {
    if (!told_) asked_at_.reset();
    return lines;
  }
  if (asked_at_ && wait->age >= *asked_at_ && wait->age < 2 * *asked_at_) return lines;
  asked_at_ = wait->age;
  Ask(*wait, now);
  return lines;
}

std::vector<std::string> WatchedWorld::End(TimePoint now, bool failed) {
  std::vector<std::string> lines;
  LookForBroken(now);
  if (failed && !told_broken_) TellBroken(now, &lines);
  return lines;
}

}  // namespace kintsugi::watch
