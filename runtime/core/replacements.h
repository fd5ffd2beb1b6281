// Replacements: ranks for which somebody asked new processes, though nothing is known against theirs: one, or all of a node, whose
// place is to be elsewhere.
//
// The old processes are given up only where it costs nothing: all stand behind one step, replicas have been compared where that was
// asked for, and what they hold is kept beyond them: by their launcher, or by two others, or in a checkpoint of that step. So
// the loss of one more process before the new ones have the state is an ordinary one.
//
// Threads: none.
// Errors: what is refused is a sentence.
// Invariants: a request is met once; a process that was replaced meanwhile, for whatever reason, has met it. A node's is met when its
// ranks are elsewhere, for whatever reason.
#pragma once

#include <string>
#include <vector>

#include "runtime/core/board.h"

namespace kintsugi::core {

class Replacements {
 public:
  struct Request {
    std::vector<Rank> ranks;  // ascending, at least one
    bool drains = false;      // a node, of all that it has
    std::vector<Incarnation> incarnations;
    TimePoint until;
    std::string text;  // what was asked for
  };

  explicit Replacements(const Board& board) : board_(board) {}

  // Empty: a new process may be asked for; all of these ranks' node may be drained.
  std::string WhyNot(Rank rank) const { return WhyNot(std::vector<Rank>{rank}, false); }
  std::string WhyNotDrained(Rank first, int ranks) const;
  // REQUIRES: WhyNot(rank), WhyNotDrained(first, ranks) is empty.
  void Ask(Rank rank);
  void AskToDrain(Rank first, int ranks);
  bool waits() const { return !asked_.empty(); }
  const Request& next() const { return asked_.front(); }
  bool Waits(Rank rank) const;
  // The next one needs a checkpoint of the step at which all stand.
  bool NeedsSave() const { return waits() && !AreKept(asked_.front().ranks, asked_.front().drains); }
  // No boundary has come for as long as the longest step.
  bool IsLate() const { return waits() && board_.now() >= asked_.front().until; }
  // The next one. REQUIRES: waits().
  Request Take();
  // Those whose processes are others by now.
  void ForgetMet();
  // These ranks are on another node.
  void Moved(Rank first);

 private:
  std::string WhyNot(const std::vector<Rank>& ranks, bool drains) const;
  bool AreKept(const std::vector<Rank>& ranks, bool drains) const;

  const Board& board_;
  std::vector<Request> asked_;
};

}  // namespace kintsugi::core
