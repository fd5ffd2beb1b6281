// WorkerStarter: how a rank's process comes to be: a spare that has been waiting, one forked from the warm process, or
// a new one.
//
// Threads: one, which runs the io_context.
// Ownership: of spares and of the warm process; a rank's process is the table's.
// Errors: SetUp: what keeps any process from starting. One that cannot be started is told as its end.
// Invariants: none starts while its predecessor runs, nor once the run leaves. Where a spare waits, it is what a rank
// is started with.
#pragma once

#include <boost/asio/io_context.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/log.h"
#include "runtime/base/unique_fd.h"
#include "runtime/inject/ledger.h"
#include "runtime/launcher/workers/device_guard.h"
#include "runtime/launcher/workers/joining_watch.h"
#include "runtime/launcher/workers/spare_pool.h"
#include "runtime/launcher/workers/warm_process.h"
#include "runtime/launcher/workers/worker_events.h"
#include "runtime/launcher/workers/worker_guard.h"
#include "runtime/launcher/workers/worker_output.h"
#include "runtime/launcher/workers/worker_spec.h"
#include "runtime/launcher/workers/worker_table.h"
#include "runtime/net/secret.h"
#include "runtime/process/oom_monitor.h"

namespace kintsugi {

// The part that is told that a rank's process has ended.
class ProcessEnds {
 public:
  virtual void OnProcessEnd(const RankIncarnation& who, const ExitCause& cause) = 0;
  // No line of its output follows.
  virtual void OnOutputEnd(Rank rank) = 0;

 protected:
  ~ProcessEnds() = default;
};

// The processes of this host: what they are started with, which there are, what they print, what they leave behind.
struct HostProcesses {
  const WorkerPoolOptions& options;
  WorkerTable& table;
  WorkerOutput& output;
  WorkerGuard& guard;
};

class WorkerStarter {
 public:
  WorkerStarter(boost::asio::io_context& io, const HostProcesses& processes, WorkerEvents& events, Ledger& ledger,
                DeviceGuard& devices, JoiningWatch& joining, std::shared_ptr<LogSink> log);

  // Once the options are known, and guard and devices are set up. `mark`: in the environment of every process.
  Status SetUp(const std::string& mark, const net::Secret& secret, ProcessEnds& ends);
  bool is_set_up() const { return spares_.has_value(); }

  // Starts the rank's process, as soon as what it is to be forked from is ready.
  // REQUIRES: set up; no process of the rank runs.
  void Start(const RankIncarnation& who);
  // Spares of this host, all of them new: on a node without ranks at once; elsewhere once its ranks have been started.
  void KeepSpares();
  // Those that wait go on waiting.
  void WantSpares() { spares_->Want(options_.spares); }
  // Every few milliseconds: starts what is missing of spares and the warm process, tells how many wait.
  void Poll(TimePoint now);
  // Now and then.
  void Settle() { oom_.Settle(); }
  int spares_waiting() const { return spares_told_; }
  // Whether it is a spare, or the warm process.
  bool Has(pid_t pid) const;
  // No process is started any more; spares end.
  void End();
  // ... and nobody is told.
  void Clear();

 private:
  WorkerShares Shares() const;
  void StartNow(const RankIncarnation& who);
  void OnNotStarted(const RankIncarnation& who, const std::string& why);
  Status StartProcess(const RankIncarnation& who, Worker& worker);
  bool TakeSpare(const RankIncarnation& who, Worker& worker);
  Result<std::unique_ptr<ChildProcess>> Launch(std::shared_ptr<Seat> seat, ProcessSpec spec);
  Result<std::unique_ptr<ChildProcess>> LaunchWarm(int server_fd, int list_fd);
  void Seize(Seat& seat, Worker& worker);
  void TellSpares(TimePoint now);
  int DeviceOf(Rank rank) { return devices_.pool().DeviceOf(options_.LocalRankOf(rank)); }

  boost::asio::io_context& io_;
  const WorkerPoolOptions& options_;
  WorkerEvents& events_;
  WorkerTable& table_;
  Ledger& ledger_;
  WorkerOutput& output_;
  WorkerGuard& guard_;
  DeviceGuard& devices_;
  JoiningWatch& joining_;
  const std::shared_ptr<LogSink> log_;
  ProcessEnds* ends_ = nullptr;  // once set up
  std::string mark_;
  UniqueFd secret_fd_;
  OomMonitor oom_;
  uint64_t lives_ = 0;                       // processes started
  std::unique_ptr<WarmProcess> warm_;        // null: without
  std::map<Rank, RankIncarnation> waiting_;  // for it
  std::optional<SparePool> spares_;          // once set up
  int spares_told_ = 0;
};

}  // namespace kintsugi
