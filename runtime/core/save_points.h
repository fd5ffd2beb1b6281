// SavePoints: where ranks park between steps: by themselves at every step of a period, all together at a pause, until
// they are told to leave.
//
// A pause parks every rank at the boundary after one step (PauseRounds); where it moves on, a rank that had parked at
// the earlier step is sent on.
//
// Threads: none.
// Errors: what is said again of a point that was left is answered by the order to leave.
// Invariants: a rank that is parked cannot hang; one that leaves is told so once, and again where it asks.
#pragma once

#include <optional>

#include "runtime/core/board.h"
#include "runtime/core/hang_watch.h"
#include "runtime/core/pause_rounds.h"

namespace kintsugi::core {

class SavePoints {
 public:
  SavePoints(Board& board, HangWatch& hangs);

  const PauseRounds& rounds() const { return rounds_; }
  bool SavesAt(Step step) const { return IsMultiple(step, board_.policy.save_every); }
  // All ranks park there by themselves.
  bool IsPeriodic(Step step) const { return SavesAt(step) || IsMultiple(step, board_.policy.verify_every); }

  // A pause of its own: its rounds are counted from the first.
  void Begin() { rounds_.Begin(); }
  // All ranks are to store the pause, ahead of where any of them is known to be.
  void Arm();
  // True: all have stored it, and come.
  bool OnAck(Rank rank, const PauseAck& ack);
  // The rank may have missed the pause with its connection.
  void TellAgain(Rank rank);
  // An incident: agents drop their pauses.
  void Drop() { rounds_.Drop(); }

  // The rank is parked. False: nothing is done there, and it has been sent on.
  bool OnParked(Rank rank, Step step);
  // The step at which every rank is parked, or has finished.
  std::optional<Step> AllAt() const;
  // The step at which somebody is parked, where all that have not finished are at one.
  std::optional<Step> ParkedAt() const;
  void LeaveAll();

 private:
  static bool IsMultiple(Step step, uint64_t every) { return every > 0 && step.value() % every == 0; }
  void Leave(Rank rank);

  Board& board_;
  HangWatch& hangs_;
  PauseRounds rounds_;
};

}  // namespace kintsugi::core
