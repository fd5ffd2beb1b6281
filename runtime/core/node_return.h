// What a node that comes back says of its processes, against what the controller knows of its ranks: which processes
// are ended there, and which ends the controller is told of.
//
// Rule: a process that lives there and is not the one that the controller counts on is ended. One that it counts on and
// that does not live there has ended, unless it never began: because an earlier one is still in its place, or because
// the order to start it still waits for the node.
// Threads: none; pure.
// Errors: a rank outside the world is a failed CHECK.
// Invariants: each rank of the node is judged as it was before any of it is told, whatever that sets off.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/core/roster.h"

namespace kintsugi::core {

// The ranks of one node.
struct RankBlock {
  Rank first;
  int ranks = 0;
};
// The newest life of each rank whose process runs there.
using LivesThere = std::map<Rank, Incarnation>;

struct ReturnAction {
  enum class What {
    kEnd,         // the node is told to end this process: it was given up while the node was away
    kHadEnded,    // one that was given up while nobody could tell whether it lived: it does not
    kEndedAway,   // the one that was counted on has ended meanwhile
    kNeverBegan,  // the one that was counted on was not begun: the one before it still runs, until it is ended
  };
  What what = What::kEnd;
  Rank rank;
  Incarnation incarnation;
  bool operator==(const ReturnAction&) const = default;
};
// In the order in which they are to be done. `to_spawn`: what waits until the node is there.
std::vector<ReturnAction> CompareLives(const std::vector<Member>& members, const RankBlock& block,
                                       const LivesThere& lives, const std::map<Rank, Incarnation>& to_spawn);

// To a controller that takes over and knows nothing yet: what runs there is what there is. Nothing: that rank's process
// had ended.
struct FoundLife {
  Rank rank;
  std::optional<Incarnation> incarnation;
  bool operator==(const FoundLife&) const = default;
};
std::vector<FoundLife> FindLives(const RankBlock& block, const LivesThere& lives);

}  // namespace kintsugi::core
