// WarmProcess: one process of a host that has loaded what the program loads, and forks the ranks that replace others.
//
// It starts once every rank of the host computes, since only then the ranks have said what the program loads: one of
// them writes the list into a memory file that all have (KINTSUGI_WARM_FD). `first`: it has been told what to load
// (--preload) and starts at once, so that the first processes are forked from it, too. Where it cannot be forked (it has
// threads, or a device) it says why, once, and ranks start as they would without it.
// Threads: one, which runs the io_context.
// Errors: one that cannot be started or dies is a log line; SpareStartPolicy says whether another is tried.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "runtime/base/log.h"
#include "runtime/launcher/workers/spare_start_policy.h"
#include "runtime/process/child_process.h"
#include "runtime/process/fork_server.h"

namespace kintsugi {

class WarmProcess {
 public:
  // Starts it; `server_fd` and `list_fd` are passed to it.
  using Launch = std::function<Result<std::unique_ptr<ChildProcess>>(int server_fd, int list_fd)>;
  static Result<std::unique_ptr<WarmProcess>> Create(bool first, Launch launch, std::shared_ptr<LogSink> log);

  // The memory file for the names of what is loaded, one a line; to be passed to the ranks.
  int list_fd() const { return list_.get(); }
  // Starts it when it is time, and hears whether it is ready.
  void Poll(bool computing, TimePoint now);
  void OnRankStarted(TimePoint now) { start_policy_.OnRankStarted(now); }
  // Whether the first processes wait for it.
  bool is_awaited() const { return awaited_; }
  // What it could not load of what it was told to; empty: it could, or it was told nothing.
  const std::string& lacks() const { return lacks_; }
  // What a process is forked from; null: it is started then.
  ForkServer* server();
  void OnExit(const ExitCause& cause);
  bool Is(pid_t pid) const { return child_ && child_->pid() == pid; }
  // Kills it and starts no more.
  void End();

 private:
  WarmProcess(UniqueFd list, bool first, Launch launch, std::shared_ptr<LogSink> log)
      : list_(std::move(list)), launch_(std::move(launch)), log_(std::move(log)), awaited_(first) {}
  bool MayStart(bool computing, TimePoint now) const;
  void Start(TimePoint now);
  void Listen();
  void Say(LogLevel level, const std::string& event, const std::string& why);

  UniqueFd list_;
  const Launch launch_;
  const std::shared_ptr<LogSink> log_;
  SpareStartPolicy start_policy_{1};
  std::optional<ForkServer> server_;
  std::unique_ptr<ChildProcess> child_;
  TimePoint started_;
  bool awaited_;
  std::string lacks_;
  bool told_ = false;     // that it is ready, or why it never will be
  bool refused_ = false;  // for good: the next one would say the same
  bool ended_ = false;
};

}  // namespace kintsugi
