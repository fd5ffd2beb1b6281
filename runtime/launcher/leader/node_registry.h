// NodeRegistry: the nodes of a run as its leader knows them: who is here, who has which block of ranks, what waits until a
// node is here, where each hears the others.
//
// A launcher's index: first come the nodes that a run begins with, then controllers without ranks, then spare nodes.
// Threads: none; pure: instants come in as arguments.
// Ownership: values.
// Errors: an index that there is not is a failed CHECK: the code that takes a frame in looks at its numbers first.
// Invariants: a node comes and goes in turns; what waits for a node is of its own ranks.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/core/node_return.h"
#include "runtime/core/placement.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi {

struct NodeShape {
  int nodes = 1;  // blocks of ranks
  int controllers = 0;
  int local_ranks = 1;
};
// The --node-rank of the launcher with this index.
inline int NodeNumber(const NodeShape& shape, int node) {
  return node < shape.nodes + shape.controllers ? node : node - shape.controllers;
}

class NodeRegistry {
 public:
  struct Node {
    int number = 0;  // its index
    bool here = false;
    bool seen = false;                          // it was here once
    TimePoint lost_at;                          // where it is not here
    bool cut_off = false;                       // its launcher gets no ranks: others cannot reach it, or it was drained
    bool absent = false;                        // the controller was told that it need not wait for it
    bool said_away = false, said_gone = false;  // to the logs, of this absence
    wire::NodePlace place;                      // where it hears the others
    std::string host, version;                  // its host's name; its program's version
    uint64_t launcher = 0;                      // its newest
    std::map<Rank, Incarnation> to_spawn;       // what waits until it is here
    int spares = 0;                             // processes that wait on it
    TimePoint pulsed_at;                        // last sign of the leader's life
    bool knows_totals = false, knows_story = false;  // since it was last welcomed
  };

  NodeRegistry(NodeShape shape, core::Placement placement, TimePoint now);

  const NodeShape& shape() const { return shape_; }
  std::vector<Node>& all() { return nodes_; }
  const std::vector<Node>& all() const { return nodes_; }
  Node& At(int node);
  const Node& At(int node) const;

  // Who has which ranks.
  const core::Placement& placement() const { return placement_; }
  int NodeOf(Rank rank) const { return placement_.NodeOf(rank.value() / shape_.local_ranks); }
  bool OfNode(Rank rank, int node) const;
  std::optional<int> BlockOf(int node) const { return placement_.BlockOf(node, shape_.nodes); }
  bool HasRanks(int node) const { return BlockOf(node).has_value(); }
  bool IsSpare(int node) const;
  Rank FirstOf(int block) const { return Rank(block * shape_.local_ranks); }
  // REQUIRES: HasRanks(node).
  core::RankBlock RanksOf(int node) const;
  void BeginTerm(uint64_t term) { placement_.Begin(term); }
  // What waited on the node that has lost the block is waited for no more.
  void Move(uint64_t term, const core::Takeover& takeover, Generation running);
  // Nodes that have ranks, and controllers, decide even splits.
  std::set<int> Voters() const;

  // Who is here.
  struct Arrival {
    std::optional<Duration> away;  // its absence had been told of
    bool moved = false;            // it listens elsewhere than before
  };
  Arrival OnJoined(int node, const wire::NodeHello& hello, TimePoint now);
  void OnLost(int node, TimePoint now);
  // Each node that has ranks is.
  bool AllHere() const;
  bool SpareHere() const { return !Spares().empty(); }
  // Those that are here and have no ranks.
  std::vector<int> Spares() const;
  // Those that are not, and should be or were.
  std::vector<int> Away() const;
  // Those that have ranks or may get some, for the choice of a takeover.
  std::vector<core::Host> Hosts() const;

  // As its operator knows it.
  int NumberOf(int node) const { return NodeNumber(shape_, node); }
  std::string Name(int node) const { return "node " + std::to_string(NumberOf(node)); }
  // "1", or "controller-0" of one without ranks.
  std::string Label(int node) const;
  // "4 to 7"
  std::string RanksText(int block) const;

 private:
  bool IsIndex(int node) const { return node >= 0 && static_cast<size_t>(node) < nodes_.size(); }

  const NodeShape shape_;
  core::Placement placement_;
  std::vector<Node> nodes_;
};

}  // namespace kintsugi
