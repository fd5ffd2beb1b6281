// Collectives: the groups in which ranks meet: all of a generation enter, all leave; or the group breaks and those
// inside fail.
//
// Threads: none.
// Ownership: of the meetings that are open; whom they concern it tells `Meeters`.
// Invariants: a meeting ends for a process once, by meeting or by failing; what had come together when its group broke
// may still arrive at some and not at others.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/sim/world.h"

namespace kintsugi::sim {

enum class Meeting : uint8_t { kGradients, kGate, kParams, kConnect, kRollback };

// Those that were in a meeting, when it is over.
class Meeters {
 public:
  // `sum`: of what all brought; `tainted`: some of it was computed with a bit that had flipped.
  virtual void OnMet(Process* p, uint64_t sum, bool tainted) = 0;
  virtual void OnBroken(Process* p) = 0;

 protected:
  ~Meeters() = default;
};

class Collectives {
 public:
  Collectives(World& world, Meeters& meeters) : world_(world), meeters_(meeters) {}

  // In its group; it is blocked until it has met the others, or failed.
  void Enter(Process* p, Meeting kind, uint64_t step, uint64_t value, std::optional<Object> object = std::nullopt);
  void BreakGroup(Generation generation);
  // What its agent says of its group: a step's collectives have numbers that all ranks have alike.
  core::RankMarks MarksOf(const Process* p, uint64_t round) const;

  // Roads between nodes, one way each, that are closed to ranks: a meeting across one waits, and fails at its limit.
  using NodeRoads = std::vector<std::pair<int, int>>;  // from, to
  void CloseRoads(const NodeRoads& roads);
  void OpenRoads(const NodeRoads& roads);
  // Of the pairs that connect, the later rank dials: whom this one dials in vain.
  std::vector<UnreachedPeer> UnreachedBy(const Process* p) const;

 private:
  struct Collective {
    std::vector<bool> here;
    std::vector<uint64_t> values;
    std::vector<std::optional<Object>> objects;
    size_t entered = 0, awaited = 0;
    uint64_t sum = 0;  // once complete
    bool tainted = false;
    bool complete = false;
  };
  bool CanMeet() const;
  bool IsClosed(int a, int b) const { return closed_.count({a, b}) > 0 || closed_.count({b, a}) > 0; }
  void Complete(const MeetingKey& key, Collective& collective);
  void Leave(Process* p, const MeetingKey& key);
  void Fail(Process* p);

  World& world_;
  Meeters& meeters_;
  std::map<MeetingKey, Collective> open_;
  std::set<Generation> broken_;
  std::multiset<std::pair<int, int>> closed_;
};

}  // namespace kintsugi::sim
