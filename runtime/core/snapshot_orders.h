// SnapshotOrders: in-memory snapshots (SnapshotRounds) as ranks are told to make them, and what they say of it.
//
// Threads: none.
// Errors: a report of another round is not taken.
// Invariants: a round begins only while all ranks are in their loops; one that is settled is followed by the next.
#pragma once

#include <string>

#include "runtime/core/board.h"
#include "runtime/core/faults.h"
#include "runtime/core/hang_watch.h"
#include "runtime/core/snapshot_rounds.h"

namespace kintsugi::core {

class SnapshotOrders {
 public:
  SnapshotOrders(Board& board, SnapshotRounds& rounds, const HangWatch& hangs, Faults& faults)
      : board_(board), rounds_(rounds), hangs_(hangs), faults_(faults) {}

  // Orders the next one, where one may be made now.
  void Arm();
  // The rank's part of the round, which it may have missed with its connection.
  void TellAgain(Rank rank);
  void OnReport(Rank rank, const SnapshotReport& report);
  // The snapshot that a reload goes back to cannot be used as it is: another way is chosen.
  void OnUnreadable(Rank rank, const std::string& why);

 private:
  Board& board_;
  SnapshotRounds& rounds_;
  const HangWatch& hangs_;
  Faults& faults_;
};

}  // namespace kintsugi::core
