// Placement: on which node each block of ranks lives, and when a spare node takes one over.
//
// A block is what one node starts: block I holds the ranks from I x (ranks of a node) on, and is at home on node I. A
// node beyond these has none: it is a spare. Where a node stays away its block moves to a spare, and the node, should
// it come back, is the spare of the next one.
//
// Launchers tell each other the newest placement that they know of: of two, the leader's of the newer term, then the
// one with more moves. A leader tells every node of a move before it begins the generation that goes with it. So a
// launcher that consented to that generation knows the move, and of any two majorities one node at least does: a node
// that was cut off and replaced can be counted by none of them.
// Threads: none; pure.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"

namespace kintsugi::core {

// Their places among the launchers go on where the controllers' end.
inline constexpr int kSpareNodesMax = 64;

class Placement {
 public:
  struct Version {
    uint64_t term = 0;
    uint64_t number = 0;  // of moves in it
    auto operator<=>(const Version&) const = default;
  };
  struct Moved {
    int node = 0;
    Generation since;  // the newest one before the move in which all ranks were in their loops
    bool operator==(const Moved&) const = default;
  };

  Placement() = default;
  Placement(Version version, std::map<int, Moved> moved) : version_(version), moved_(std::move(moved)) {}

  int NodeOf(int block) const;
  // `blocks`: how many there are. Nothing: the node is a spare.
  std::optional<int> BlockOf(int node, int blocks) const;
  // By block: those that were ever moved.
  const std::map<int, Moved>& moved() const { return moved_; }
  Version version() const { return version_; }

  // By the leader of `term`.
  void Move(uint64_t term, int block, int node, Generation since);
  // That leader's own from now on. Not a part's: it may have missed a move, and takes nothing over by itself.
  void Begin(uint64_t term) { version_ = {term, 0}; }
  // Another's, where that is newer. True: it was.
  bool Learn(const Placement& other);
  // Whether what the block's node says of its ranks has weight in an election. After a move it has once all ranks were
  // in their loops again (`running`: the newest generation in which they were): before that it is not known whether a
  // majority has heard of the move, and the node that had the block before may count for others.
  bool Counts(int block, Generation running) const;

 private:
  Version version_;
  std::map<int, Moved> moved_;
};

// A node as the leader sees it.
struct Host {
  int node = 0;
  bool here = false;
  TimePoint away_since;  // where it is not here
};
struct Takeover {
  int block = 0;
  int from = 0, to = 0;
};
// What is due: the lowest block whose node has been away for `after`, for the lowest node that is here and has none.
// `may_move`: whether the run stands where a block's ranks can be begun elsewhere.
template <typename MayMove>
std::optional<Takeover> NextTakeover(const Placement& placement, int blocks, const std::vector<Host>& hosts,
                                     Duration after, TimePoint now, MayMove may_move) {
  const Host* spare = nullptr;
  std::optional<Takeover> due;
  for (const Host& host : hosts) {
    const std::optional<int> block = placement.BlockOf(host.node, blocks);
    if (!block && host.here && !spare) spare = &host;
    if (block && !host.here && now - host.away_since >= after && (!due || *block < due->block) && may_move(*block))
      due = Takeover{*block, host.node, 0};
  }
  if (!spare || !due) return std::nullopt;
  due->to = spare->node;
  return due;
}

}  // namespace kintsugi::core
