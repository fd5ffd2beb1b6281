// Fresh memory for damaged ranges of a CUDA device: the device's version of FreshMemory (damage_map.h).
//
// What: works on memory that was mapped by CUDA's virtual memory management (cuMemCreate and cuMemMap; what frameworks
// call expandable segments): the damaged range's physical allocation is unmapped and released, another is mapped at the
// same address, so that nobody's pointers change. Ranges grow to whole mapped allocations. Other memory (cudaMalloc)
// cannot be replaced at its address: kFailedPrecondition, and the caller reports the whole rank.
// The context must be alive: after a contained error (Xid 94) it is not, and the process is replaced instead.
// Threads: one; REQUIRES: nothing of the device uses the range.
// Errors: kNotFound without a driver; kInternal with its words. Not verified on a device.
#pragma once

#include <memory>

#include "runtime/base/result.h"
#include "runtime/device/damage_map.h"

namespace kintsugi::device {

// With `path` that driver and no other.
KINTSUGI_EXPORT Result<std::unique_ptr<FreshMemory>> CudaFreshMemory(int device, const std::string& path = "");

}  // namespace kintsugi::device
