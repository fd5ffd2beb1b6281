// ExitCause: how a process ended, in a form that an incident can carry and a user can read.
//
// Threads: a value.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/export.h"
#include "runtime/base/status.h"

namespace kintsugi {

enum class ExitKind {
  kExitCode,     // it left by itself, `code` says how
  kSignal,       // `signal` ended it
  kOutOfMemory,  // the kernel killed it to get memory back (see oom_monitor.h for what this rests on)
  kSpawnFailed,  // it never ran
  kUnknown,      // it has ended, but its status was taken by someone else in this process
};

struct ExitCause {
  ExitKind kind = ExitKind::kUnknown;
  int code = 0;    // kExitCode
  int signal = 0;  // kSignal, kOutOfMemory
  // kSignal: this very signal had been sent through ChildProcess, so the end was ordered.
  bool ordered = false;
  // "exited with code 3", "killed by SIGKILL", "out of memory (killed by the kernel)", ...
  std::string text;
  // The end of its error output as far as it was there at the moment of the exit: at most 20 lines and 4 KiB.
  std::vector<std::string> last_stderr_lines;
  Duration silent_for{};  // since the newest of them came
  TimePoint time;  // when this process learnt of it
};

// "SIGKILL"; "signal 40" for those without a name.
KINTSUGI_EXPORT std::string SignalName(int signal);

// The sentence for `text` from the other fields.
KINTSUGI_EXPORT std::string DescribeExit(const ExitCause& cause, bool core_dumped);

// What a launcher reports for a process that could not be started.
KINTSUGI_EXPORT ExitCause SpawnFailure(const Status& status, TimePoint now);

// The line of an error output's end that tells most: of the last Python traceback the line that names the exception;
// else the last line that no carriage return wrote over, as progress bars do. Empty: there is none.
KINTSUGI_EXPORT std::string TellingLine(const std::vector<std::string>& last_lines);

// "; last line of its error output: " and that line, for a sentence on the exit; of one that is kOldWords old it says so,
// since it may be about something else. Empty: there is none.
KINTSUGI_EXPORT std::string LastWords(const ExitCause& cause);
inline constexpr Duration kOldWords = std::chrono::seconds(5);

// Keeps the end of a text, line by line: the newest kMaxLines lines, kMaxBytes in all. Of a line that was written over
// and over what a terminal would show at its end is kept, and its first carriage return.
class KINTSUGI_EXPORT LineTail {
 public:
  static constexpr size_t kMaxLines = 20;
  static constexpr size_t kMaxBytes = 4096;

  void Add(std::string_view line);
  std::vector<std::string> lines() const { return {lines_.begin(), lines_.end()}; }

 private:
  std::deque<std::string> lines_;
  size_t bytes_ = 0;
};

}  // namespace kintsugi
