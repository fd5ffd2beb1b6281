#include "runtime/process/exit_cause.h"

#include <csignal>
#include <cstring>

namespace kintsugi {

std::string SignalName(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

std::string DescribeExit(const ExitCause& cause, bool core_dumped) {
  switch (cause.kind) {
    case ExitKind::kExitCode:
      return "exited with code " + std::to_string(cause.code);
    case ExitKind::kSignal:
      return "killed by " + SignalName(cause.signal) + (core_dumped ? " (core dumped)" : "");
    case ExitKind::kOutOfMemory:
      return "out of memory (killed by the kernel)";
    case ExitKind::kSpawnFailed:
      return "could not be started";
    case ExitKind::kUnknown:
      break;
  }
  return "ended for an unknown reason (its status was collected elsewhere: SIGCHLD ignored, or a foreign wait)";
}

ExitCause SpawnFailure(const Status& status, TimePoint now) {
  ExitCause cause;
  cause.kind = ExitKind::kSpawnFailed;
  cause.text = DescribeExit(cause, false) + ": " + status.message();
  cause.time = now;
  return cause;
}

void LineTail::Add(std::string_view line) {
  // Of a line that alone is too long, the end is kept: that is where a message's conclusion stands.
  if (line.size() > kMaxBytes) line.remove_prefix(line.size() - kMaxBytes);
  lines_.emplace_back(line);
  bytes_ += line.size();
  while (lines_.size() > kMaxLines || bytes_ > kMaxBytes) {
    bytes_ -= lines_.front().size();
    lines_.pop_front();
  }
}

}  // namespace kintsugi
