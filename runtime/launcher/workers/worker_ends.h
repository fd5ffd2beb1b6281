// WorkerEnds: how a rank's process comes to its end: killed, with its stacks logged first where it still lives; reaped
// with what it left behind; and told, with what the end means.
//
// Threads: one, which runs the io_context.
// Errors: what hangs in the kernel is left behind after two seconds, and said.
// Invariants: a victim is reaped before its successor starts, and so is what it left behind; what a dead rank left in its
// page is told before its exit.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/launcher/workers/worker_events.h"
#include "runtime/launcher/workers/worker_guard.h"
#include "runtime/launcher/workers/worker_output.h"
#include "runtime/launcher/workers/worker_pages.h"
#include "runtime/launcher/workers/worker_starter.h"
#include "runtime/launcher/workers/worker_table.h"

namespace kintsugi {

class WorkerEnds final : public ProcessEnds {
 public:
  WorkerEnds(boost::asio::io_context& io, const HostProcesses& processes, WorkerEvents& events, WorkerPages& pages,
             WorkerStarter& starter, std::shared_ptr<LogSink> log);

  // One that still gives signs of life does not come out of something: first its stacks are logged, which takes a
  // second at most.
  void Kill(const RankIncarnation& who, const std::string& reason);
  // Its device has failed: there is nothing to look at in it.
  void KillAtOnce(Rank rank, const std::string& why);
  // Its successor is `next`.
  void Replace(Worker& worker, Incarnation next);
  void KillAll();

  void OnProcessEnd(const RankIncarnation& who, const ExitCause& cause) override;
  void OnOutputEnd(Rank rank) override;

 private:
  void DumpStacks(Worker& worker, const RankIncarnation& who);
  // What the process left behind is killed first: its successor must not meet it.
  void ClearAway(const RankIncarnation& who, ExitCause cause, TimePoint until);
  void Tell(const RankIncarnation& who, const ExitCause& cause);
  void StartNext(Rank rank);
  void TellIfIdle();

  boost::asio::io_context& io_;
  const WorkerPoolOptions& options_;
  WorkerEvents& events_;
  WorkerTable& table_;
  WorkerOutput& output_;
  WorkerGuard& guard_;
  WorkerPages& pages_;
  WorkerStarter& starter_;
  const std::shared_ptr<LogSink> log_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace kintsugi
