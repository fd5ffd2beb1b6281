#include "tests/bench/allocation_counter.h"

#include <cstdlib>
#include <new>

namespace {
thread_local uint64_t allocations = 0;
}  // namespace

namespace kintsugi::bench {
uint64_t AllocationsOfThisThread() { return allocations; }
}  // namespace kintsugi::bench

// The array forms and those that do not throw come through here; over-aligned ones do not, and nothing uses them.
void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
