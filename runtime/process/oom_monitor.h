// OomMonitor: tells whether a SIGKILL came from the kernel's out-of-memory killer.
//
// The kernel does not tell a parent why its child got SIGKILL. Two traces remain:
//  * the kernel log names the victim's pid: proof, where the log is readable and pids are the host's;
//  * a counter of such kills has grown since the last one that was explained: strong evidence. The counter is the one
//    of this process's memory cgroup (v2 memory.events, v1 memory.oom_control), else the host's (/proc/vmstat).
// Limits: with the counter alone, a kill that hit another process of the same cgroup (or host) can be taken for the
// cause of a SIGKILL that someone else sent afterwards, until Settle has run twice. Workers that were moved to another
// cgroup are not covered by it.
//
// Threads: one owner.
// Errors: none; without a readable source the answer is always no.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/export.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi {

// The number behind "oom_kill " at a line's start, or nothing.
KINTSUGI_EXPORT std::optional<uint64_t> ParseOomKills(std::string_view counters);

// The pid in a kernel log record such as "...: Killed process 4711 (byte_lm) total-vm:...", or nothing.
KINTSUGI_EXPORT std::optional<pid_t> ParseOomVictim(std::string_view record);

class KINTSUGI_EXPORT OomMonitor {
 public:
  struct Sources {
    std::string counter_path;     // empty: none
    std::string kernel_log_path;  // empty: none
  };
  static Sources FindSources();

  explicit OomMonitor(const Sources& sources = FindSources());

  // Was the SIGKILL that ended `pid` the kernel's? Each counted kill explains one death. Never blocks.
  bool Claim(pid_t pid);

  // To be called now and then (a second apart is fine): kills that were already counted at the previous call and that
  // no death has claimed since hit somebody else, and will not be offered as an explanation any more.
  void Settle();

 private:
  std::optional<uint64_t> ReadCounter() const;
  void ReadLog();

  std::string counter_path_;
  UniqueFd kernel_log_;
  std::deque<pid_t> victims_;  // named by the log, not yet claimed; bounded
  uint64_t explained_ = 0;
  uint64_t settled_ = 0;  // the counter at the last Settle
};

}  // namespace kintsugi
