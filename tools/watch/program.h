// WatchedProgram: what `kintsugi watch` starts: with our standard streams, in our group of processes, so that it is to a terminal what it would
// be without us; signals that are sent to us are handed on.
//
// Threads: the one that started it; signals of the process are blocked in it from then on.
// Ownership: the process, until it has ended.
// Errors: Start: kUnavailable, with what was to be started.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace kintsugi::watch {

class WatchedProgram {
 public:
  // `more`: what stands in its environment beside ours.
  static Result<WatchedProgram> Start(const std::vector<std::string>& command,
                                      const std::vector<std::pair<std::string, std::string>>& more);

  // Its status, as of waitpid, once it has ended; else nothing after that time.
  std::optional<int> Await(Duration limit);

 private:
  WatchedProgram(pid_t pid, const sigset_t& signals) : pid_(pid), signals_(signals) {}

  pid_t pid_;
  sigset_t signals_;
};

// Ends this process as that one was: by the same signal. Returns the exit code of one that was not ended by a signal.
int ExitCodeOf(int status);

}  // namespace kintsugi::watch
