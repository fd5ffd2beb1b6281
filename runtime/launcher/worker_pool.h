// WorkerPool: the processes of this host's ranks. Starts and ends them, passes their output on, and reads the pages
// they share with it: signs of life, places, reports, injections that struck.
//
// What it sees goes to a WorkerEvents: the launcher that hosts the controller, or the link of a node to it.
// Threads: one, which runs the io_context.
// Errors: what keeps the pool from starting is returned by SetUp; a process that cannot be started is an exit.
// Invariants: at most one process a rank; a victim is reaped before its successor starts; what a dead rank left in its
// page is told before its exit. Where a spare waits, it is what a rank is started with.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/base/train_phase.h"
#include "runtime/inject/ledger.h"
#include "runtime/launcher/device_guard.h"
#include "runtime/launcher/spare_pool.h"
#include "runtime/launcher/state_keeper.h"
#include "runtime/launcher/warm_process.h"
#include "runtime/launcher/worker_events.h"
#include "runtime/net/secret.h"
#include "runtime/process/child_process.h"
#include "runtime/process/guardian.h"
#include "runtime/process/oom_monitor.h"
#include "runtime/process/output_prefixer.h"
#include "runtime/process/rank_files.h"
#include "runtime/process/shared_page.h"
#include "runtime/process/stack_dump.h"

namespace kintsugi {

struct WorkerPoolOptions {
  std::string job;
  std::string program;
  std::vector<std::string> args;
  std::map<std::string, std::string> environment;
  int world_size = 1;
  Rank first_rank;  // of this host; LOCAL_RANK counts from it
  int local_ranks = 1;
  int node_rank = 0;
  bool has_ranks = true;  // false: of a spare node, which keeps a warm process for each rank that it may take over
  std::string master_address = "127.0.0.1";
  uint16_t master_port = 0;
  std::string controller;             // HOST:PORT, as the ranks reach it
  std::string address = "127.0.0.1";  // of this host, as other ranks reach it
  bool adopt = true;                  // state memory is kept for the process that comes after
  std::vector<std::string>
      warm_args;    // of `program`, as a process that forks replacements (warm_process.h); empty: none
  int spares = 0;   // processes that wait, warm, for a rank whose process is gone
  int devices = 0;  // of this host, which are then watched; 0: one for each rank, not watched
  Duration silence = std::chrono::seconds(1);  // of a process that has begun to beat and is not in its loop yet
  bool show_output = true;
  bool output_to_stderr = false;
  std::shared_ptr<OutputPrefixer> output;  // null: one is made
  std::shared_ptr<RankFiles> rank_files;   // null: none
};

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
  // One that still gives signs of life does not come out of something: first its stacks are logged, which takes a
  // second at most.
  void Kill(Rank rank, Incarnation incarnation, const std::string& reason);
  void KillAll();
  // Processes that end from now on are not replaced, nor are others started; spares end.
  void Leave();
  bool running() const;
  // Looks at every page once, and tells what is there.
  void Poll();
  // Reports that are still in the pages are told again: whoever was told may not have got them. A report may be told
  // twice.
  void TellReportsAgain();
  // Of ranks whose process has ended, and is not replaced by one that is in its loop.
  std::map<Rank, core::HeldState> Held() const;
  // Lines of output that are still on their way.
  void Flush();
  uint64_t reports_lost() const;
  int spares_waiting() const { return spares_told_; }

  struct Life {
    Rank rank;
    Incarnation incarnation;
    std::vector<std::string> armed;
  };
  // Of every process that runs.
  std::vector<Life> Lives() const;

 private:
  struct Slot {
    Incarnation incarnation;
    std::unique_ptr<ChildProcess> child;
    std::optional<SharedPage> page;
    std::optional<ReportReader> reports;
    StateKeeper state;
    std::optional<Incarnation> next;  // to be started once the present process is reaped
    std::vector<std::string> armed;
    std::string kill_reason;
    std::unique_ptr<StackDump> stacks;    // before it is killed
    bool forked = false;                  // from the warm process, not started by itself
    std::string life;                     // the mark in the environment of what belongs to this process
    bool reaping = false;                 // it has ended, and what it left behind has not yet
    std::optional<TimePoint> stopped_at;  // seen so: before it could beat

    bool running() const { return reaping || (child && child->running()); }
  };

  void Start(Rank rank, Incarnation incarnation);
  Status StartProcess(const Place& place, Slot& slot);
  bool TakeSpare(const Place& place, Slot& slot);
  // What every process of this pool is started with.
  ProcessSpec CommonSpec() const;
  Result<std::unique_ptr<ChildProcess>> Launch(std::shared_ptr<Seat> seat, ProcessSpec spec);
  Result<std::unique_ptr<ChildProcess>> LaunchWarm(int server_fd, int list_fd);
  bool AllCompute() const;
  void KeepSpares();
  void TellSpares();
  void OnExit(Rank rank, Incarnation incarnation, const ExitCause& cause);
  void OnProcessEnd(Rank rank, Incarnation incarnation, const ExitCause& cause);
  // What the process left behind is killed first: its successor must not meet it.
  void ClearAway(Rank rank, Incarnation incarnation, ExitCause cause, TimePoint until);
  bool IsKnown(pid_t pid) const;
  void MendGuardian();
  // A process that has been given a place and freezes before it is in its loop: nobody else watches it yet.
  void CheckJoining(Rank rank, Slot& slot, TimePoint now);
  void ReadPage(Rank rank, Slot& slot);
  void DumpStacks(Rank rank, Slot& slot);
  void TellIfIdle();
  void OnLine(const Seat& seat, OutputStream stream, std::string_view line);
  int DeviceOf(Rank rank) { return devices_.pool().DeviceOf(rank.value() - options_.first_rank.value()); }
  // Ends the processes of ranks whose device has failed, at once: there is nothing to look at in them.
  void OnDeviceFault(const std::vector<int>& local_ranks, const std::string& why);

  boost::asio::io_context& io_;
  WorkerEvents& events_;
  std::shared_ptr<LogSink> log_;
  WorkerPoolOptions options_;
  std::string mark_;  // in the environment of every process of this pool
  UniqueFd secret_fd_;
  OomMonitor oom_;
  std::unique_ptr<Guardian> guardian_;
  std::string guardian_trouble_;  // an unchanged reason is not repeated
  uint64_t lives_ = 0;            // processes started
  std::shared_ptr<OutputPrefixer> output_;
  Ledger ledger_;
  std::unique_ptr<WarmProcess> warm_;  // null: without
  std::optional<SparePool> spares_;    // once set up
  int spares_told_ = 0;
  DeviceGuard devices_;
  std::map<Rank, Slot> slots_;
  TimePoint last_settled_, awake_since_;
  bool leaving_ = false;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace kintsugi
