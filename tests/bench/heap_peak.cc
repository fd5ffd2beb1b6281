#include "tests/bench/heap_peak.h"

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace {
int64_t in_use = 0, peak = 0, base = 0;

void Note(int64_t bytes) {
  in_use += bytes;
  if (in_use > peak) peak = in_use;
}
}  // namespace

namespace kintsugi::bench {

void ResetHeapPeak() { base = peak = in_use; }
uint64_t HeapPeak() { return static_cast<uint64_t>(peak - base); }
uint64_t HeapInUse() { return static_cast<uint64_t>(in_use - base); }

}  // namespace kintsugi::bench

void* operator new(size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  Note(static_cast<int64_t>(malloc_usable_size(memory)));
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) Note(-static_cast<int64_t>(malloc_usable_size(memory)));
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }
