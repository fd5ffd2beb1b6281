// WorkerPool: the processes of this host's ranks: builds the parts below, gives them their turns, and is what the
// launcher speaks to.
//
// What it sees goes to a WorkerEvents: the launcher that hosts the controller, or the connection of a node to it.
// Threads: one, which runs the io_context.
// Ownership: of all parts and processes.
// Errors: what keeps the pool from starting is returned by SetUp; a process that cannot be started is an exit.
// Invariants: at most one process a rank; a victim is reaped before its successor starts; what a dead rank left in its
// page is told before its exit. Where a spare waits, it is what a rank is started with.
#pragma once

#include <boost/asio/io_context.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/inject/ledger.h"
#include "runtime/launcher/workers/device_guard.h"
#include "runtime/launcher/workers/joining_watch.h"
#include "runtime/launcher/workers/worker_ends.h"
#include "runtime/launcher/workers/worker_events.h"
#include "runtime/launcher/workers/worker_guard.h"
#include "runtime/launcher/workers/worker_options.h"
#include "runtime/launcher/workers/worker_output.h"
#include "runtime/launcher/workers/worker_pages.h"
#include "runtime/launcher/workers/worker_starter.h"
#include "runtime/launcher/workers/worker_table.h"
#include "runtime/net/secret.h"

namespace kintsugi {

class WorkerPool {
 public:
  WorkerPool(boost::asio::io_context& io, WorkerEvents& events, std::shared_ptr<LogSink> log);
  ~WorkerPool();

  // Before the first process.
  Status SetUp(WorkerPoolOptions options, const net::Secret& secret);
  Result<InjectionId> Arm(const Injection& injection) { return ledger_.Add(injection); }

  // A spare node has these ranks from now on: those of the block of this number.
  void TakeBlock(int block);
  // Another node has this one's ranks: what runs of them here ends, and what is held of them is forgotten.
  void GiveBlockUp(const std::string& why);
  // Starts a process, once the one before it is reaped.
  void Spawn(Rank rank, Incarnation incarnation);
  // With its stacks logged, where it lives.
  void Kill(Rank rank, Incarnation incarnation, const std::string& reason) { ends_.Kill({rank, incarnation}, reason); }
  void KillAll() { ends_.KillAll(); }
  // Processes that end from now on are not replaced, nor are others started; spares end.
  void Leave();
  bool running() const { return table_.running(); }
  // Looks at every page once, and tells what is there.
  void Poll();
  // Reports that are still in the pages are told again: the leader that was told may not have got them. A report may be
  // told twice.
  void TellReportsAgain() { pages_.TellReportsAgain(); }
  // What is held of each rank whose process has ended and is not replaced by one that is in its loop.
  std::map<Rank, core::HeldState> Held() const { return table_.Held(); }
  // Lines of output that are still on their way.
  void Flush() { output_.Flush(); }
  uint64_t reports_lost() const { return table_.reports_lost(); }
  int spares_waiting() const { return starter_.spares_waiting(); }
  using Life = WorkerTable::Life;
  std::vector<Life> Lives() const { return table_.Lives(); }

 private:
  // One that froze before it was in its loop ends.
  void CheckJoining(Rank rank, Worker& worker, TimePoint now);

  // Each knows only those before it.
  WorkerPoolOptions options_;
  WorkerTable table_;
  Ledger ledger_;
  WorkerOutput output_;
  WorkerGuard guard_;
  DeviceGuard devices_;
  JoiningWatch joining_;
  WorkerPages pages_;
  WorkerStarter starter_;
  WorkerEnds ends_;
  TimePoint settled_at_;
};

}  // namespace kintsugi
