// Roads: which ranks could not reach which, attempt after attempt of one incident.
//
// A road between two hosts that both reach the controller may be closed: nobody is lost, and no attempt can succeed. Which
// it is the rank says that dialed in vain. Where so many attempts name the same two hosts, the one that most cannot reach is
// the one to do without; of two that cannot reach each other, the later one.
//
// Threads: none.
// Errors: none.
// Invariants: what is counted is of the newest incident; an attempt counts once, whoever names it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/board.h"

namespace kintsugi::core {

class Roads {
 public:
  // So many attempts that name the same hosts are no accident.
  static constexpr size_t kAttemptsMax = 3;

  explicit Roads(Board& board) : board_(board) {}

  // The rank could not reach these in the attempt under way.
  void Take(Rank rank, const std::vector<UnreachedPeer>& peers);
  // ... which has failed with no other cause in sight: one that died would refuse, too. What is named first in an incident is told.
  void Conclude();
  // The ranks of a host that others cannot reach, attempt after attempt.
  struct CutOff {
    std::vector<Rank> ranks;  // ascending
    std::string text;
  };
  std::optional<CutOff> FindCutOff() const;
  // Nodes that wait with nothing to do.
  void TellSpareNodes(int here) { spare_nodes_ = here; }
  int spare_nodes() const { return spare_nodes_; }

 private:
  using Pair = std::pair<int, int>;  // of hosts, the smaller first
  struct Road {
    std::set<int> attempts;
    TimePoint first;
    UnreachedPeer newest;
    Rank from;
  };
  int HostOf(Rank rank) const;
  // So often, and for so long that the end of a process would be known.
  bool IsClosed(const Road& road) const;

  struct Named {
    Rank from;
    UnreachedPeer to;
  };

  Board& board_;
  std::vector<Named> named_;  // in the attempt under way
  int attempt_ = 0;           // ... which is this one
  uint64_t incident_ = 0;
  std::map<Pair, Road> roads_;
  std::set<std::pair<Rank, Rank>> told_;
  int spare_nodes_ = 0;
};

}  // namespace kintsugi::core
