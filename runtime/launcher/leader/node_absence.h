// NodeAbsence: nodes that stay away. A run begins with all of its nodes. Later a lost one may come back, itself or
// started anew, until the wait is over; then what it was to start fails, and the ladder goes on. Where a spare node is
// here, that one takes its ranks over sooner; where the trainer offers a smaller world, the run goes on in it sooner.
//
// Threads: one, that of the leader.
// Ownership: all that it is given outlives it.
// Errors: nodes that do not come before the run has begun end it (HostEvents::OnNobodyCame).
// Invariants: every node hears of a move before the generation that begins with it (runtime/core/placement.h), and the
// spare before the processes that it is to start; each absence is said once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/controller/controller.h"
#include "runtime/controller/node_hub.h"
#include "runtime/launcher/leader/even_splits.h"
#include "runtime/launcher/leader/hosts.h"
#include "runtime/launcher/leader/node_broadcast.h"
#include "runtime/launcher/leader/node_registry.h"
#include "runtime/launcher/run/run_account.h"

namespace kintsugi {

struct NodeWaits {
  Duration to_begin{};      // for all nodes, before the run
  Duration to_return{};     // for one that was lost
  Duration spare_after{};   // until a spare node takes its ranks
  Duration shrink_after{};  // until the run goes on without them, where it can
};

// The nodes of a run as its leader has them: who they are, how one is told, by what they go at an even split, how all
// are told.
struct LedNodes {
  NodeRegistry& registry;
  NodeOrders& orders;
  EvenSplits& splits;
  NodeBroadcast& broadcast;
};

class NodeAbsence {
 public:
  NodeAbsence(NodeWaits waits, uint64_t term, Controller& controller, const RunAccount& account, const LedNodes& nodes,
              HostEvents& above);

  // Where the ranks live from now on is told with every welcome; and who has ranks decides even splits.
  void TakePlacement();
  // The controller has begun: what was moved before, it hears now.
  void OnStarted();
  // Ten times a second.
  void Check(TimePoint now);
  void OnLost(int node);
  void OnBack(int node);
  // Nobody waits for these nodes; should they come back, their places can be filled again.
  void TellPlacesAway();
  // It is here, and taken for away from now on: others cannot reach it.
  void CutOff(int node, const std::string& why);

 private:
  void CheckNodes(TimePoint now);
  void GiveUpWaiting(NodeRegistry::Node& node);
  void MoveBlocks(TimePoint now);
  void TellSpareNodes();
  void DoWithout(NodeRegistry::Node& node, TimePoint now);
  bool IsNeeded(int node) const;
  bool OffersWorlds() const;
  void SayAway(NodeRegistry::Node& node);
  void SayGone(NodeRegistry::Node& node);
  std::string WhyNotBack(int node) const;

  const NodeWaits waits_;
  const uint64_t term_;
  Controller& controller_;
  const RunAccount& account_;
  NodeRegistry& registry_;
  NodeOrders& orders_;
  EvenSplits& splits_;
  NodeBroadcast& broadcast_;
  HostEvents& above_;
  size_t spares_told_ = 0;
  std::vector<Rank> places_told_;
};

}  // namespace kintsugi
