// WorkerTable: the process of each of this host's ranks, or what is left of it.
//
// Threads: one, which runs the io_context.
// Ownership: of the processes, their pages and the memory that is held of them. An entry stays where it is while the
// host has its rank.
// Invariants: at most one process a rank; one that runs has a page.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/train_phase.h"
#include "runtime/launcher/workers/held_memory.h"
#include "runtime/process/child_process.h"
#include "runtime/process/shared_page.h"
#include "runtime/process/spare_channel.h"
#include "runtime/process/stack_dump.h"

namespace kintsugi {

struct Worker {
  Incarnation incarnation;
  std::unique_ptr<ChildProcess> child;
  std::optional<SharedPage> page;
  std::optional<ReportReader> reports;
  HeldMemory state;
  std::optional<Incarnation> next;  // to be started once the present process is reaped
  std::vector<std::string> armed;
  std::string kill_reason;
  std::unique_ptr<StackDump> stacks;  // before it is killed
  bool forked = false;                // from the warm process, not started by itself
  std::string life;                   // the mark in the environment of what belongs to this process
  bool reaping = false;               // it has ended, and what it left behind has not yet

  bool running() const { return reaping || (child && child->running()); }
  // REQUIRES: it was started once.
  SharedWords& words();
  const SharedWords& words() const;
  bool computes() const { return running() && UnpackProgress(words().progress.load()).step > 0; }
  void Give(SharedPage its_page);
};

class WorkerTable {
 public:
  // Made where there is none.
  Worker& operator[](Rank rank) { return workers_[rank]; }
  // Null: it has none, or of another life.
  Worker* Find(Rank rank);
  Worker* Find(const RankIncarnation& who);
  auto begin() { return workers_.begin(); }
  auto end() { return workers_.end(); }

  bool running() const;
  bool AllCompute() const;
  bool Has(pid_t pid) const;
  // The rank whose process runs under this number.
  std::optional<Rank> RankOf(pid_t pid) const;
  uint64_t reports_lost() const;
  // A process that runs and is not being replaced.
  struct Life {
    Rank rank;
    Incarnation incarnation;
    std::vector<std::string> armed;
  };
  std::vector<Life> Lives() const;
  // What is held of each rank whose process has ended and is not replaced by one that is in its loop.
  std::map<Rank, core::HeldState> Held() const;

  // No process starts any more, and what is held is of no use.
  void Leave();
  bool leaving() const { return leaving_; }
  // What is left of processes that have ended.
  void DropEnded();
  // Kills what runs. Nobody is told.
  void Clear() { workers_.clear(); }

 private:
  std::map<Rank, Worker> workers_;
  bool leaving_ = false;
};

}  // namespace kintsugi
