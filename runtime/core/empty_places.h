// EmptyPlaces: the seats of which no rank takes part, as far as processes could be started there again: whose nodes are away, who
// left for a fault of its own, and how often a place was to be filled in vain.
//
// Rule: a place is filled again by itself once its node is here. Not one whose rank was lost while its node was here: the next one
// would be lost as well. Three attempts in vain are enough, until its node comes anew.
// Threads: none; pure: instants come in as arguments.
// Invariants: with one host, or where nobody tells, every node is here.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"

namespace kintsugi::core {

class EmptyPlaces {
 public:
  // `pause`: after an attempt in vain; after each one more it is doubled.
  explicit EmptyPlaces(Duration pause) : pause_(pause) {}

  // All empty places whose nodes are away.
  void TellAway(const std::vector<Rank>& ranks);
  // The rank takes no part any more, and the end of its process was seen: it was its own.
  void OnLost(Rank rank) { lost_.insert(rank); }
  // It takes part.
  void OnFilled(Rank rank);
  // None can be filled yet.
  void OnNone(TimePoint now) { next_ = now + pause_; }
  // A process was to come, and did not come into the run.
  void OnInVain(const std::vector<Rank>& ranks, TimePoint now);

  bool IsHere(Rank rank) const { return !away_.count(rank); }
  // By itself, at some time.
  bool MayBeFilled(Rank rank) const;
  // ... now.
  bool MayBeFilledAt(TimePoint now) const { return now >= next_; }

 private:
  const Duration pause_;
  std::set<Rank> away_, lost_;
  std::map<Rank, int> in_vain_;
  TimePoint next_;
};

}  // namespace kintsugi::core
