#include "runtime/process/exit_cause.h"

#include <csignal>
#include <cstring>

namespace kintsugi {

std::string SignalName(int signal) {
  if (signal >= SIGRTMIN && signal <= SIGRTMAX) return "SIGRTMIN+" + std::to_string(signal - SIGRTMIN);
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

namespace {

// Of a line that a carriage return within it wrote over, what came last; `over`: it was.
std::string_view Shown(std::string_view line, bool* over) {
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const size_t last = line.rfind('\r');
  *over = last != std::string_view::npos;
  return *over ? line.substr(last + 1) : line;
}

bool IsBlank(std::string_view line) { return line.find_first_not_of(" \t") == std::string_view::npos; }

// Without what torch puts before each line of a rank's traceback, "[rank0]: ".
std::string_view WithoutRank(std::string_view line) {
  if (line.rfind("[rank", 0) != 0) return line;
  const size_t end = line.find("]: ");
  return end == std::string_view::npos ? line : line.substr(end + 3);
}

// "  File "train.py", line 7, in step": a frame of a traceback.
bool IsFrame(std::string_view line) {
  return line.rfind("  File \"", 0) == 0 && line.find("\", line ") != std::string_view::npos;
}

}  // namespace

std::string TellingLine(const std::vector<std::string>& last_lines) {
  std::string plain, shown, exception;
  bool in_traceback = false, ignored = false;
  for (const std::string& whole : last_lines) {
    bool over = false;
    const std::string_view line = WithoutRank(Shown(whole, &over));
    if (IsBlank(line)) continue;
    shown = line;
    if (!over) plain = line;
    // What Python says of an exception that it goes on from, in a destructor say.
    if (line.rfind("Exception ignored in", 0) == 0) ignored = true;
    if (IsFrame(line)) {
      in_traceback = true;
    } else if (in_traceback && line.front() != ' ' && line.front() != '\t') {
      if (!ignored) exception = line;
      in_traceback = ignored = false;
    }
  }
  if (!exception.empty()) return exception;
  return plain.empty() ? shown : plain;
}

std::string LastWords(const ExitCause& cause) {
  const std::string telling = TellingLine(cause.last_stderr_lines);
  if (telling.empty()) return "";
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(cause.silent_for).count();
  return "; last line of its error output" +
         (cause.silent_for >= kOldWords ? ", " + std::to_string(seconds) + " s before" : "") + ": " + telling;
}

void LineTail::Add(std::string_view line) {
  bool over = false;
  const std::string_view shown = Shown(line, &over);
  std::string kept;
  if (over) line = kept = "\r" + std::string(shown);
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
