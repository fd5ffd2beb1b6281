// Survey: what the ladder is told of the world: each rank's condition, and what it may still cost to replace it.
//
// Threads: none; reads, changes nothing.
// Invariants: a rank that needs a repair is in no condition to give; one that has no state of its own yet counts as
// gone.
#pragma once

#include "runtime/core/board.h"
#include "runtime/core/comparison.h"
#include "runtime/core/ladder.h"
#include "runtime/core/offers.h"
#include "runtime/core/repeats.h"

namespace kintsugi::core {

class Survey {
 public:
  Survey(const Board& board, const Repeats& repeats, const Comparison& comparison)
      : board_(board), repeats_(repeats), comparison_(comparison) {}

  IncidentFacts Take() const;
  // Why the run cannot go on with these alone, of those that take part now; kChosen: it can.
  RungReason WhyNotWithin(const Crew& crew) const;
  // In which smaller world the run can go on from these. REQUIRES: there is a map of replicas.
  SmallerWorld FindSmaller(const IncidentFacts& facts) const;
  // Whether there is one without these ranks, should nobody wait for them any more.
  bool CanDoWithout(const std::vector<Rank>& ranks) const;
  // What those that take part offer together.
  Result<OfferedWorlds> Offered() const;
  // They cut their state anew for whoever takes part.
  bool OffersAnyLayout() const;
  // Empty: with OffersAnyLayout they may do so now.
  std::string WhyNoRelayout() const;

 private:
  SmallerWorld FindWithout(const std::vector<Rank>& lost, const IncidentFacts& facts) const;
  // Which piece nobody holds at the step at which all meet, of those that live; empty: all are held.
  std::string LacksPiece(const IncidentFacts& facts) const;
  RankFacts Of(Rank rank) const;
  // Why what can be saved is saved, and nothing repaired any more.
  std::string Leaving() const;

  const Board& board_;
  const Repeats& repeats_;
  const Comparison& comparison_;
};

}  // namespace kintsugi::core
