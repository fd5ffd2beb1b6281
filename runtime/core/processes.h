// Processes: the lives of the ranks' processes: who is started, given up, seen no more, and what is left of the dead.
//
// Threads: none.
// Errors: as the Board's.
// Invariants: a life is given up once, and the next one has a newer incarnation; what was of a dead process alone is
// forgotten with it; memory that was doubted once is of no use for good.
#pragma once

#include <string>
#include <vector>

#include "runtime/core/board.h"
#include "runtime/core/control_gate.h"
#include "runtime/core/detector.h"
#include "runtime/core/repeats.h"
#include "runtime/core/snapshot_rounds.h"
#include "runtime/core/spare_counts.h"

namespace kintsugi::core {

class Processes {
 public:
  Processes(Board& board, ControlGate& gate, SnapshotRounds& snapshots, const Repeats& repeats);

  // A process of the rank's next incarnation is started; where a warm one waits on its node, that one takes the place.
  void StartNext(Rank rank);
  // One more of the rank's respawns, at once: its start-up runs beside LOCK, STOP and CLEAN. Nothing where it has none
  // left, or nothing is repaired any more.
  void Respawn(Rank rank);
  // A process for a seat that takes no part, which knows nothing of the run; it has its respawns from then on. REQUIRES: the
  // seat has none.
  void StartNewcomer(Rank rank);
  // Newer than every life that the controllers before this one gave, and to be read: term 2 begins at 2000001.
  Incarnation FirstOfTerm() const { return Incarnation(board_.term.number * 1'000'000); }
  // The life that the rank has is over, as far as anybody here can tell.
  void MarkDead(Rank rank);
  // ... and its process, if there is one, is told so.
  void Kill(Rank rank, const std::string& reason);
  // It takes no part any more: its process, if there is one, ends by itself, content. REQUIRES: it is not in the crew.
  void Dismiss(Rank rank);

  // Its connection is here from now on, or gone.
  void SeeJoin(Rank rank);
  void SeeClosed(Rank rank);
  void SeeBeat(Rank rank, uint64_t count) { detector_.OnBeat(rank, count, board_.now()); }
  // Since the rank's newest sign of life; nothing of one that nobody watches.
  std::optional<Duration> SinceBeat(Rank rank) const { return detector_.SinceBeat(rank, board_.now()); }
  // Those that have been silent for the limit: each is told once.
  std::vector<Rank> Silent();
  // Those whose connection stays away. Thousands may be cut off at once: one that is still missing while others come
  // back is not lost yet, for there is a queue.
  std::vector<Rank> Lost() const;
  // Until when those that are missing may come back, where one of many just did.
  TimePoint ReturnsUntil() const;

  void TellSpares(const SparesWaiting& spares) { spares_.Tell(spares); }
  // What a launcher holds of the rank's dead process; it is not to be had where it was doubted.
  void TellHeld(const StateHeld& told);

 private:
  bool IsLost(const Member& member) const;

  Board& board_;
  ControlGate& gate_;
  SnapshotRounds& snapshots_;
  const Repeats& repeats_;
  FailureDetector detector_;
  SpareCounts spares_;
};

}  // namespace kintsugi::core
