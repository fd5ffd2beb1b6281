// Replacements: ranks for which somebody asked a new process, though nothing is known against theirs.
//
// The old process is given up only where it costs nothing: all stand behind one step, replicas have been compared where that was
// asked for, and what the process holds is kept beyond it: by its launcher, or by two others, or in a checkpoint of that step. So
// the loss of one more process before the new one has the state is an ordinary one.
//
// Threads: none.
// Errors: what is refused is a sentence.
// Invariants: a request is met once; a process that was replaced meanwhile, for whatever reason, has met it.
#pragma once

#include <string>
#include <vector>

#include "runtime/core/board.h"

namespace kintsugi::core {

class Replacements {
 public:
  explicit Replacements(const Board& board) : board_(board) {}

  // Empty: one may be asked for.
  std::string WhyNot(Rank rank) const;
  // REQUIRES: WhyNot(rank) is empty.
  void Ask(Rank rank);
  bool waits() const { return !asked_.empty(); }
  Rank next() const { return asked_.front().rank; }
  bool Waits(Rank rank) const;
  // The next one needs a checkpoint of the step at which all stand.
  bool NeedsSave() const { return waits() && !IsKept(asked_.front().rank); }
  // No boundary has come for as long as the longest step.
  bool IsLate() const { return waits() && board_.now() >= asked_.front().until; }
  // The next one. REQUIRES: waits().
  Rank Take();
  // Those whose process is another one by now.
  void ForgetMet();

 private:
  struct Request {
    Rank rank;
    Incarnation incarnation;
    TimePoint until;
  };
  bool IsKept(Rank rank) const;

  const Board& board_;
  std::vector<Request> asked_;
};

}  // namespace kintsugi::core
