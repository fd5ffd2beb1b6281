// XXH3-64 for one vector width: each width is its own translation unit, so that only code chosen at run time uses it.
// Internal to kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kintsugi::internal {

struct Xxh3Functions {
  uint64_t (*hash)(const void* data, size_t size_bytes);
  void* (*create)();
  void (*destroy)(void* state);
  void (*reset)(void* state);
  void (*update)(void* state, const void* data, size_t size_bytes);
  uint64_t (*digest)(const void* state);
};

const Xxh3Functions& Xxh3Base();
const Xxh3Functions& Xxh3Avx2();
const Xxh3Functions& Xxh3Avx512();

}  // namespace kintsugi::internal
