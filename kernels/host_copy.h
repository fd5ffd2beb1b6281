// Copies of large host memory that will not be read again soon.
//
// The destination is written past the caches (non-temporal stores), which saves the read of every destination line; the
// source is taken in tiles of 16 KiB, so that a checksum reads it from memory once and the copy finds it in the cache.
// Threads: pure.
// Units: bytes. Source and destination must not overlap.
#pragma once

#include <cstdint>

#include "kernels/host_checksum.h"
#include "runtime/base/export.h"

namespace kintsugi {

// Copies; with `checksum` also adds the source bytes to it. Small copies are ordinary ones. All stores are visible to
// other threads, in order, when the call returns.
KINTSUGI_EXPORT void StreamCopy(void* to, const void* from, uint64_t size_bytes, RunningChecksum* checksum = nullptr);

}  // namespace kintsugi
