// Replaces operator new of the program it is linked into by one that counts.
#pragma once

#include <cstdint>

namespace kintsugi::bench {

// Calls of operator new on this thread so far; other threads may allocate meanwhile.
uint64_t AllocationsOfThisThread();

}  // namespace kintsugi::bench
