// HangWatch: faults that only their duration shows: a step that does not move; and ranks that are slow, which are no
// fault yet.
//
// A hang is met as any fault is: all ranks are stopped. A rank that comes out of its step by that goes on with the
// others (a collective that waited for ever is retried); one that does not is killed at the end of STOP and replaced. A
// rank that hangs at the same step once more is not asked again where all others are in the gate, so that it must be
// the one; elsewhere it may wait for a neighbour that hangs, and is asked twice.
//
// Long before that is one all ranks are asked what their groups did and where they stand (MarkRounds), and what is made of
// the answers is told. Where it says who is to blame, the hang is that rank's, and not theirs who wait for it.
//
// Threads: none.
// Errors: as the Board's.
// Invariants: nobody is blamed while a rank has yet to be back in its loop, nor where ranks are on their way to be
// saved.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/core/board.h"
#include "runtime/core/faults.h"
#include "runtime/core/hang_detector.h"
#include "runtime/core/mark_rounds.h"
#include "runtime/core/repeats.h"
#include "runtime/core/slow_ranks.h"

namespace kintsugi::core {

class HangWatch {
 public:
  HangWatch(Board& board, const Processes& processes, Faults& faults, Repeats& repeats);

  // All are in their loops, from now on or again.
  void Start();
  // All leave a place where they had parked: what was under way says nothing of who is slow.
  void StartSlow() { slow_.Start(board_.members.crew().size()); }
  void OnPlace(Rank rank, const Progress& place);
  // The rank waits for others outside of its loop; it is in its loop again.
  void OnIdle(Rank rank) { detector_.OnIdle(rank, board_.now()), looks_.OnIdle(rank, board_.now()); }
  void OnActive(Rank rank) { detector_.OnActive(rank, board_.now()), looks_.OnActive(rank, board_.now()); }
  void OnMarks(Rank rank, const RankMarks& marks) { rounds_.OnMarks(rank, marks); }
  // A collective failed, or a process is gone, which libraries make of that, too (Gloo aborts): whether ranks were in
  // different ones is asked, but not of `gone`.
  void OnBroken(std::optional<Rank> gone = {});
  // Call at every tick.
  void Check();

  // How long a step takes; nothing before it is learnt.
  std::optional<Duration> step_time() const { return detector_.step_time(); }
  // How long a rank may stand still.
  Duration Limit() const { return detector_.Limit(); }
  // How long a rank that stood still may take to come out of it: as long as it might have stood there.
  Duration ParkLimit() const { return park_limit_.value_or(Limit()); }
  // The same for a rank of which nobody has said so; nothing where that is not known.
  std::optional<Duration> StepLimit(Rank rank) const { return detector_.StepLimit(rank); }
  // What the rank is in by its own word takes longer than a step, since the ranks were stopped too.
  bool IsBusy(Rank rank) const { return detector_.IsBusy(rank, board_.phase_began(), board_.now()); }
  // How far a slow rank is behind the others; nothing for a rank that is not slow.
  std::optional<Duration> LateBy(Rank rank) const { return slow_.LateBy(rank); }

 private:
  void BlameRanks(const Hang& hang);
  bool BlameWhoLeft(const Hang& hang);
  void BlameWhoIsShort(const Hang& hang);
  bool BlameWhoIsExplained(Hang* hang);
  void BlameProgram(const std::vector<Rank>& ranks, const std::string& text, const Hang& hang);
  void Look();
  void TakeAnswers();

  Board& board_;
  Faults& faults_;
  Repeats& repeats_;
  HangDetector detector_;
  HangDetector looks_;  // with limits that are soon over: nothing is done about what it finds but to ask
  MarkRounds rounds_;
  struct Explained {
    Blame blame;
    uint64_t step = 0;
    TimePoint at;
  };
  std::optional<Explained> explained_;  // the newest
  std::optional<Duration> asked_still_;  // when it was asked last, in this standstill
  uint64_t asked_step_ = 0;
  SlowRanks slow_;
  std::optional<Duration> park_limit_;  // of the newest hang
};

}  // namespace kintsugi::core
