// The body of each host_xxh3*.cc: xxHash compiled into this translation unit alone, with its symbols hidden in it.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/host_xxh3.h"

namespace kintsugi::internal {
namespace {

inline const Xxh3Functions kXxh3Functions = {
    .hash = [](const void* data, size_t size) -> uint64_t { return XXH3_64bits(data, size); },
    .create = []() -> void* { return XXH3_createState(); },
    .destroy = [](void* state) { XXH3_freeState(static_cast<XXH3_state_t*>(state)); },
    .reset = [](void* state) { XXH3_64bits_reset(static_cast<XXH3_state_t*>(state)); },
    .update = [](void* state, const void* data,
                 size_t size) { XXH3_64bits_update(static_cast<XXH3_state_t*>(state), data, size); },
    .digest = [](const void* state) -> uint64_t {
      return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state));
    },
};

}  // namespace
}  // namespace kintsugi::internal
