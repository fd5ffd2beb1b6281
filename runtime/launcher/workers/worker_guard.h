// WorkerGuard: nothing of a host's processes is left behind: a helper kills what outlives the launcher (Guardian), what
// a process leaves behind is killed with it, and what nobody waits for is reaped.
//
// Threads: one, which runs the io_context.
// Errors: a helper that cannot be replaced is a log line, once for each reason.
// Invariants: a process that somebody here knows is never killed or reaped as an orphan.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/process/guardian.h"

namespace kintsugi {

class WorkerGuard {
 public:
  explicit WorkerGuard(std::shared_ptr<LogSink> log) : log_(std::move(log)) {}

  // The part that has processes says which are its own; before SetUp.
  void Know(std::function<bool(pid_t)> is_known) { known_.push_back(std::move(is_known)); }
  // `mark`: "NAME=VALUE" in the environment of every process of this host, and of no other's.
  Status SetUp(const std::string& mark);

  Guardian* guardian() const { return guardian_.get(); }
  // What carries this life's mark is killed. How many are still there: while it is more than none, ask again.
  size_t KillLeftBehind(const std::string& life) const;
  // Call now and then.
  void Tend();

 private:
  bool IsKnown(pid_t pid) const;
  void Mend();

  const std::shared_ptr<LogSink> log_;
  std::vector<std::function<bool(pid_t)>> known_;
  std::unique_ptr<Guardian> guardian_;  // null: not set up
  std::string trouble_;                 // an unchanged reason is not repeated
};

}  // namespace kintsugi
