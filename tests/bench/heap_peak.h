// Replaces operator new of the program it is linked into by one that knows how much memory is in use.
#pragma once

#include <cstdint>

namespace kintsugi::bench {

// The largest number of bytes in use since ResetHeapPeak, above what was in use then. One thread.
void ResetHeapPeak();
uint64_t HeapPeak();
// Bytes in use now, above what was in use at ResetHeapPeak.
uint64_t HeapInUse();

}  // namespace kintsugi::bench
