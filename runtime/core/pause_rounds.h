// PauseRounds: at which step all ranks park, and whether all of them have stored it.
//
// The controller names a step, each rank stores it and answers with the newest step it has begun; where one had already
// gone past, the pause moves to that rank's step. A rank stores the pause before it answers, so that two rounds are
// enough where steps take longer than an answer; where they do not, each further round aims twice as far ahead.
//
// Threads: none; pure.
// Errors: an answer that is not waited for is not taken.
// Invariants: within a pause the step never goes back; a round ends once every rank has answered it.
#pragma once

#include <vector>

#include "runtime/base/ids.h"
#include "runtime/core/crew.h"

namespace kintsugi::core {

class PauseRounds {
 public:
  explicit PauseRounds(int seats) : begun_(static_cast<size_t>(seats)), open_(begun_.size(), false) {}

  // A pause of its own: its rounds are counted from the first.
  void Begin() { rounds_ = 0; }
  // One more round, to which each of these is to answer. `begun`: the newest step that any rank is known to have begun.
  // What it returns is `at`: 1 at least.
  Step Arm(Step begun, const Crew& crew);
  Step at() const { return at_; }
  // Whether its answer is waited for.
  bool Awaits(Rank rank) const { return open_[IndexOf(rank)]; }

  // What it had begun when it stored the newest pause; 0: it has not since the last Drop.
  Step begun(Rank rank) const { return begun_[IndexOf(rank)]; }

  enum class Answer {
    kNotAwaited,
    kOthersToCome,
    kOvertaken,  // somebody had gone past: the next round moves the pause to where it stands
    kStored,     // by all, and nobody is past it
  };
  Answer Take(Rank rank, Step begun);

  // An incident: agents drop their pauses, nobody's answer is waited for any more, and what ranks had begun says nothing
  // about where they go on from.
  void Drop();

 private:
  size_t IndexOf(Rank rank) const;

  std::vector<Step> begun_;  // by rank
  std::vector<bool> open_;   // by rank
  size_t open_count_ = 0;
  Step at_;
  int rounds_ = 0;
};

}  // namespace kintsugi::core
