// WorkerPages: what the processes of a host say in the pages that they share with it: signs of life, places, reports,
// injections that struck.
//
// Threads: one, which runs the io_context.
// Errors: none.
// Invariants: a report is told at least once; an injected fault strikes once per run.
#pragma once

#include <string>
#include <vector>

#include "runtime/inject/ledger.h"
#include "runtime/launcher/workers/worker_events.h"
#include "runtime/launcher/workers/worker_table.h"

namespace kintsugi {

class WorkerPages {
 public:
  WorkerPages(WorkerEvents& events, WorkerTable& table, Ledger& ledger)
      : events_(events), table_(table), ledger_(ledger) {}

  // Tells what is there.
  void Read(Rank rank, Worker& worker);
  void ReadRunning();
  // Of the faults that were ordered for the rank, those that have not struck as far as its page was read.
  std::vector<std::string> NotStruck(Rank rank) const;
  // Reports that are still in the pages are told again: the leader that was told may not have got them.
  void TellReportsAgain();

 private:
  WorkerEvents& events_;
  WorkerTable& table_;
  Ledger& ledger_;
};

}  // namespace kintsugi
