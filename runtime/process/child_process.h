// ChildProcess: a worker process from its start to its end: output line by line, and the end with its cause, at once.
//
// Threads: everything, the callbacks included, runs on the one thread that runs the io_context. That thread must live
//   as long as the child may: the kernel kills the child when the thread that started it ends.
// Ownership: the destructor kills the process and its process group (SIGKILL), reaps it and drops the callbacks; lines
//   not yet delivered are lost then. It may run inside any of the callbacks. The io_context must outlive the object.
// Order: on_exit comes as soon as the kernel knows of the end and never waits for output; lines that were still in the
//   pipes follow, bounded in time and bytes; then comes on_output_end.
// Errors: Spawn, see ForkExec; signals to a process that has ended are kFailedPrecondition.
// Invariants: when the process ends, the rest of its process group is killed before on_exit; no number is signalled
//   after it was reaped, so that no stranger is ever hit.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string_view>

#include "runtime/base/export.h"
#include "runtime/base/result.h"
#include "runtime/process/exit_cause.h"
#include "runtime/process/process_spec.h"

namespace boost::asio {
class io_context;
}

namespace kintsugi {

class ForkServer;
class Guardian;
class OomMonitor;

// Shared by all processes of a launcher; both optional, both must outlive every ChildProcess that was given them.
struct ProcessHelpers {
  Guardian* guardian = nullptr;       // is told of each process group
  OomMonitor* oom_monitor = nullptr;  // without it no end is ever called "out of memory"
  ForkServer* fork_server = nullptr;  // what the process is forked from; without it its program is started
};

class KINTSUGI_EXPORT ChildProcess {
 public:
  // Any may be empty. None may throw.
  struct Callbacks {
    std::function<void(const ExitCause&)> on_exit;                     // once
    std::function<void(OutputStream, std::string_view line)> on_line;  // no newline; see LineSplitter for bounds
    std::function<void()> on_output_end;                               // once, after on_exit: no line will follow
  };

  // kUnavailable where a fork server is named that cannot fork: nothing was started.
  static Result<std::unique_ptr<ChildProcess>> Spawn(boost::asio::io_context& io, const ProcessSpec& spec,
                                                     Callbacks callbacks, ProcessHelpers helpers = {});
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const;
  bool running() const;  // false from just before on_exit

  Status Kill(int signal);
  // To the process and all descendants that stayed in its group. kFailedPrecondition without own_process_group.
  Status KillGroup(int signal);

 private:
  class Impl;
  explicit ChildProcess(std::shared_ptr<Impl> impl);

  std::shared_ptr<Impl> impl_;  // shared with handlers in flight
};

}  // namespace kintsugi
