#include "runtime/sim/collectives.h"

namespace kintsugi::sim {

namespace {

// A step's collectives, in the order in which ranks come to them.
bool IsOfStep(Meeting kind) { return kind <= Meeting::kParams; }
uint64_t NumberOf(const MeetingKey& key) { return key.step * 3 + key.kind + 1; }

// Older ones than these have been left by all who ever will.
constexpr size_t kCollectivesKept = 64;

}  // namespace

void Collectives::Enter(Process* p, Meeting kind, uint64_t step, uint64_t value, std::optional<Object> object) {
  const MeetingKey key{p->group, step, static_cast<uint8_t>(kind)};
  p->blocked_in = key;
  if (IsOfStep(kind)) p->entered = key, p->entered_at = world_.Now();
  if (broken_.count(p->group)) return world_.ForTrainer(p, world_.Between(10, 2000), [this, p] { Fail(p); });
  if (open_.size() > kCollectivesKept) open_.erase(open_.begin());
  Collective& collective = open_[key];
  if (collective.here.empty()) {
    collective.awaited = p->crew ? p->crew->size() : world_.size;
    collective.here.resize(world_.size);
    collective.values.resize(world_.size);
    if (object) collective.objects.resize(world_.size);
  }
  const auto r = static_cast<size_t>(p->rank.value());
  collective.entered += collective.here[r] ? 0 : 1;
  collective.here[r] = true;
  collective.values[r] = value;
  if (object) collective.objects[r] = object;
  collective.tainted |= p->memory.tainted;
  if (collective.entered == collective.awaited && CanMeet()) Complete(key, collective);
}

// All ranks meet in one group.
bool Collectives::CanMeet() const {
  if (closed_.empty()) return true;
  for (const Process* const p : world_.processes.newest())
    for (const Process* const q : world_.processes.newest())
      if (p && q && IsClosed(p->node, q->node)) return false;
  return true;
}

core::RankMarks Collectives::MarksOf(const Process* p, uint64_t round) const {
  core::RankMarks marks;
  marks.round = round;
  marks.place = p->Place();
  if (!p->entered || p->entered->generation != p->group) return marks;
  core::GroupMarks group;
  group.name = "world of generation " + p->group.ToString();
  for (size_t r = 0; r < world_.size; ++r)
    if (const Rank rank(static_cast<int32_t>(r)); p->InCrew(rank)) group.ranks.push_back(rank);
  group.entered = NumberOf(*p->entered);
  core::CollectiveMark mark;
  mark.number = group.entered;
  mark.kind = CollectiveKind::kAllReduce;
  mark.size = p->entered->kind;
  mark.order = group.entered;
  mark.end = p->blocked_in == p->entered ? core::CollectiveEnd::kOpen : core::CollectiveEnd::kDone;
  mark.entered = world_.Now() - p->entered_at;
  group.newest.push_back(mark);
  marks.groups.push_back(std::move(group));
  return marks;
}

void Collectives::Complete(const MeetingKey& key, Collective& collective) {
  collective.complete = true;
  for (const uint64_t each : collective.values) collective.sum += each;
  for (Process* const each : world_.processes.newest()) {
    // Now and then a thread that could go on is not let run at once.
    const Duration late = world_.random.Chance(0.05) ? world_.Between(1000, 20000) : world_.Between(20, 1500);
    world_.ForTrainer(each, late, [this, each, key] { Leave(each, key); });
  }
}

void Collectives::Leave(Process* p, const MeetingKey& key) {
  if (p->blocked_in != key) return;
  const auto found = open_.find(key);
  if (found == open_.end()) return Fail(p);
  p->blocked_in.reset();
  const Collective& collective = found->second;
  if (!collective.objects.empty()) {
    const uint64_t step = p->running ? p->running->order.step.value() : p->begun;
    for (Rank partner : p->Partners()) {
      const auto& object = collective.objects[static_cast<size_t>(partner.value())];
      if (!object) continue;
      p->memory.mirrored[partner].Put(step, *object);
      p->memory.mirrored[partner].KeepNewest(2);  // S and S - 1
    }
  }
  p->memory.objects.KeepNewest(2);
  meeters_.OnMet(p, collective.sum, collective.tainted);
}

void Collectives::Fail(Process* p) {
  if (!p->blocked_in) return;
  p->blocked_in.reset();
  meeters_.OnBroken(p);
}

void Collectives::CloseRoads(const NodeRoads& roads) { closed_.insert(roads.begin(), roads.end()); }

void Collectives::OpenRoads(const NodeRoads& roads) {
  for (const auto& road : roads) closed_.erase(closed_.find(road));
  if (!CanMeet()) return;
  for (auto& [key, collective] : open_)
    if (collective.entered == collective.awaited && !collective.complete && !broken_.count(key.generation))
      Complete(key, collective);
}

std::vector<UnreachedPeer> Collectives::UnreachedBy(const Process* p) const {
  for (const Process* const peer : world_.processes.newest())
    if (peer && peer->rank < p->rank && IsClosed(p->node, peer->node)) return {{peer->rank, 4711}};
  return {};
}

void Collectives::BreakGroup(Generation generation) {
  // A second break of what is broken already adds no more than another moment at which others may notice.
  if (!broken_.insert(generation).second && world_.size > kSmallWorld) return;
  for (Process* const p : world_.processes.newest()) {
    if (!p || !p->blocked_in || p->blocked_in->generation != generation) continue;
    // What had come together may still arrive at some and not at others.
    const auto found = open_.find(*p->blocked_in);
    if (found != open_.end() && found->second.complete && world_.random.Chance(0.5)) continue;
    world_.ForTrainer(p, world_.Between(10, 2000), [this, p] { Fail(p); });
  }
}

}  // namespace kintsugi::sim
