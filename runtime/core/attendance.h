// Attendance: who comes, goes and comes back: joins, lost connections, processes that have ended, ranks that another
// node takes over.
//
// Threads: none.
// Errors: a join that does not fit is refused with the reason; news of an older life is dropped.
// Invariants: one process is a rank at a time; one that joins again is told what it may have missed.
#pragma once

#include <string>

#include "runtime/core/halt.h"
#include "runtime/core/machines.h"
#include "runtime/core/takeover.h"

namespace kintsugi::core {

class Attendance {
 public:
  Attendance(Machines& below, Halt& halt, RunTakeover& takeover);

  void OnJoin(const Header& header, const JoinRequest& join);
  void OnReady(Rank rank, const Ready& ready);
  void OnClosed(const ConnectionClosed& closed);
  void OnExited(const ProcessExited& exited);
  // Their node's processes, should they live, are of lives that were given up.
  void OnMoved(const RanksMoved& moved);
  void OnLauncherNew(const LauncherNew& launcher);
  // The run waits for nothing but processes, those of these ranks among them, and can go on in a world without these.
  bool MayDoWithout(Rank first, int ranks) const;
  void OnAbsent(const NodeAbsent& node);

 private:
  // A rank that nobody here started names no incarnation.
  bool IsUnnamed(const Header& header) const;
  bool IsHeldBack(const JoinRequest& join) const { return takeover_.listening() && !join.joined_before; }
  std::string WhyRefused(const Header& header, const JoinRequest& join) const;
  void Refuse(const Header& header, const std::string& why);
  std::string BeginLife(Rank rank, Incarnation incarnation);
  std::string TakesNoPart(Rank rank) const;
  void Admit(const Header& header, const JoinRequest& join);
  void OnNewcomerExited(const ProcessExited& exited);
  void TellAgain(Rank rank);
  void MaybeHeal();
  bool AreInWorld(Rank first, int ranks) const;
  void MoveTo(Rank rank);
  void NoteExitOf(Rank rank, const ProcessExited& exited);
  void OnReplacementExited(const ProcessExited& exited);

  Board& board_;
  Processes& processes_;
  RunEnd& end_;
  Faults& faults_;
  SnapshotRounds& rounds_;
  SnapshotOrders& snapshots_;
  const Survey& survey_;
  Scaling& scaling_;
  Saves& saves_;
  Rescue& rescue_;
  Recovery& recovery_;
  Halt& halt_;
  RunTakeover& takeover_;
  Repeats& repeats_;
};

}  // namespace kintsugi::core
