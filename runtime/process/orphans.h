// Orphans: what a rank's process leaves behind when it ends, where its program was started through a wrapper or has put
// itself into a session of its own (setsid, a container's entry point): processes that no group signal reaches, and
// that may still map what the rank's successor is about to.
//
// The launcher is made their reaper, so they become its children at the very moment their parent ends, and a few reads
// below /proc find them; whose they are stands in their environment.
// Threads: any.
// Errors: a kernel that does not list children (CONFIG_PROC_CHILDREN) shows none; they end with the run, through the
// guardian, as before.
// Invariants: only processes that carry the mark are killed; a child that somebody waits for is nobody else's to reap.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/export.h"
#include "runtime/base/mutex.h"

namespace kintsugi {

// From now on orphans below this process become its children.
KINTSUGI_EXPORT void BecomeReaper();

// While it is held nothing is reaped below: around the start of a child until it is kept, and around the end of one.
KINTSUGI_EXPORT Mutex& ReapingMutex();
// A child that somebody waits for, on whatever thread, is theirs to reap: kept from the functions below until it is left.
KINTSUGI_EXPORT void KeepFromReaping(pid_t pid) KINTSUGI_REQUIRES(ReapingMutex());
KINTSUGI_EXPORT void LeaveToReaping(pid_t pid) KINTSUGI_REQUIRES(ReapingMutex());

// SIGKILL to every child of this process that carries `assignment` ("NAME=VALUE") and that is neither kept nor known to `is_known`; reaps
// those that have ended. How many are still there: while it is more than none, ask again, since their own children
// follow them.
KINTSUGI_EXPORT size_t KillOrphans(const std::string& assignment, const std::function<bool(pid_t)>& is_known);

// Reaps children that have ended and that are neither kept nor known to `is_known`.
KINTSUGI_EXPORT void ReapOrphans(const std::function<bool(pid_t)>& is_known);

}  // namespace kintsugi
