// FreshLives: which processes on a launcher's host have not been in the run yet. The one before such a process has ended, and that
// is what the launcher's word says of its rank in an election. A controller that was told of that end counts it as well; were the
// new process counted as one that lives, two sides could both have a majority.
//
// Rule: a process that was started once the run had begun is fresh until a generation after that in which all that take part were in
// their loops, its rank among them.
// Threads: none; pure.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "runtime/base/ids.h"

namespace kintsugi::core {

class FreshLives {
 public:
  // `running`: the newest generation in which all were in their loops; none: the run has not begun, and the process before, if there
  // was one, had nothing to promise itself for.
  void OnStarted(Rank rank, Incarnation incarnation, Generation running) {
    fresh_.erase(rank);
    if (running > Generation()) fresh_[rank] = {incarnation, running};
  }
  // `crew`: who took part in it, ascending; nobody: all.
  void OnPulse(Generation running, const std::vector<Rank>& crew) {
    std::erase_if(fresh_, [&](const auto& each) {
      const bool takes_part = crew.empty() || std::binary_search(crew.begin(), crew.end(), each.first);
      return takes_part && running > each.second.since;
    });
  }
  bool IsFresh(Rank rank, Incarnation incarnation) const {
    const auto found = fresh_.find(rank);
    return found != fresh_.end() && found->second.incarnation == incarnation;
  }

 private:
  struct Life {
    Incarnation incarnation;
    Generation since;
  };
  std::map<Rank, Life> fresh_;
};

}  // namespace kintsugi::core
