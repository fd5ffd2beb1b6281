// Finds and kills the processes that carry a mark in their environment: the way to reach descendants of a worker that
// have left its process group (setsid, daemons).
//
// Limits: a descendant that replaced its environment, runs as another user or is not dumpable is not seen.
// Threads: async-signal-safe, so that a forked helper of a process with threads may call it.
#pragma once

#include "runtime/base/export.h"

namespace kintsugi {

// The name (ps, /proc/PID/comm) of the helper that outlives a launcher; a sweep spares processes of this name.
inline constexpr char kGuardProcessName[] = "kintsugi-guard";

// Sends SIGKILL to every other process whose initial environment holds exactly `assignment` ("NAME=VALUE"). Looks again
// until several looks in a row find none, since the hunted may fork meanwhile: about 10 ms where there is nothing, at
// most 100. Returns how many signals were sent.
KINTSUGI_EXPORT int KillProcessesWithEnvironment(const char* assignment);

}  // namespace kintsugi
