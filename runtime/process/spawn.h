// ForkExec: one process started, with the pipes of its output and a pidfd. The part of ChildProcess that needs no event
// loop.
//
// Threads: any, but the child gets SIGKILL when the *thread* that started it ends (that is what PR_SET_PDEATHSIG
//   means), so that thread must live as long as the child may.
// Errors: see ForkExec. Blocks until the new program runs: microseconds, at most kExecLimit.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

#include "runtime/base/export.h"
#include "runtime/base/result.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/process_spec.h"

namespace kintsugi {

// Longer than this an exec takes only from a file system that hangs.
inline constexpr std::chrono::seconds kExecLimit{10};
// A killed process that needs longer than this to end hangs in the kernel (a dead file system or device).
inline constexpr std::chrono::seconds kReapLimit{2};

struct SpawnedProcess {
  pid_t pid = -1;
  UniqueFd pidfd;
  UniqueFd stdout_read;  // non-blocking
  UniqueFd stderr_read;  // non-blocking
};

// `before_exec` runs in this process when the child exists but not yet its program; when it fails, so does the start.
// kInvalidArgument: the spec cannot be expressed. kNotFound, kPermissionDenied, kFailedPrecondition: the program is
// missing, not executable, or not a program; the message names it and the folders searched. kResourceExhausted: no
// process, descriptor or memory left. On any error no process is left.
KINTSUGI_EXPORT Result<SpawnedProcess> ForkExec(const ProcessSpec& spec,
                                                const std::function<Status(pid_t)>& before_exec = nullptr);

// SIGKILL, then waits for the end and reaps. False when the process was still there after `limit`; it is then left
// to the kernel. `pidfd` may be -1: then the wait has no limit.
KINTSUGI_EXPORT bool KillAndReap(pid_t pid, int pidfd, std::chrono::milliseconds limit = kReapLimit);

// The file that `program` stands for, given the PATH to search; see ForkExec for the errors.
KINTSUGI_EXPORT Result<std::string> FindProgram(const std::string& program, const std::string& search_path);

}  // namespace kintsugi
