// What a freshly forked child does to itself before it becomes somebody else. Async-signal-safe throughout: the parent
// may have threads, so neither memory nor locks can be used between fork and exec.
#pragma once

#include <cstddef>

namespace kintsugi {

// Makes descriptor wanted[i] (or /dev/null for -1) number i of this process, for i below `count`, and closes every
// other descriptor: at once, or, with `at_exec`, when the program is replaced. False, with errno, when that fails.
// REQUIRES: `scratch` has room for `count` numbers; no wanted descriptor is closed.
bool RenumberDescriptors(const int* wanted, int* scratch, int count, bool at_exec);

// Default handlers and an empty signal mask. REQUIRES: all signals are blocked, so that no handler of the parent's
// runs.
void ResetSignals();

}  // namespace kintsugi
