// OneHost: the processes of a run that has one host: the pool of workers there is at hand.
//
// Threads: one, that of the launcher.
// Ownership: pool and controller are the launcher's and the leader's, and outlive it.
// Errors: as the pool's: a process that cannot be started is an exit.
#pragma once

#include "runtime/controller/controller.h"
#include "runtime/launcher/leader/hosts.h"
#include "runtime/launcher/run/launcher_options.h"
#include "runtime/launcher/workers/worker_pool.h"

namespace kintsugi {

class OneHost final : public Hosts {
 public:
  OneHost(const LauncherOptions& run, WorkerPool& pool, Controller& controller, std::shared_ptr<LogSink> log);

  bool AllHere() const override { return true; }
  void Spawn(Rank rank, Incarnation incarnation) override { pool_.Spawn(rank, incarnation); }
  void Kill(Rank rank, Incarnation incarnation, const std::string& reason) override {
    pool_.Kill(rank, incarnation, reason);
  }
  void Inject(const Injection& injection, const std::string& request, Respond respond) override;
  void Say(LogLevel level, const std::string& line) override { log_->Write(level, line); }
  void Leave(const wire::NodeEnd&) override { pool_.Leave(); }
  Result<core::RankBlock> RanksOfNode(int number) const override;
  void EndNow() override;
  bool left() const override { return !pool_.running(); }
  void LookAt(RunStatus* status) const override;
  uint64_t reports_lost() const override { return pool_.reports_lost(); }

 private:
  const LauncherOptions& run_;
  WorkerPool& pool_;
  Controller& controller_;
  std::shared_ptr<LogSink> log_;
};

}  // namespace kintsugi
