#include "callbacks/state/device_memory.h"

#include <string>

#include "callbacks/state/kept_memory.h"

namespace kintsugi {

Result<std::unique_ptr<KeptMemory>> DeviceMemory::AllocateKept(uint64_t size_bytes) const {
  return Status(StatusCode::kNotFound, "device " + std::to_string(device()) +
                                           " has no memory that outlives a process (" + std::to_string(size_bytes) +
                                           " bytes)");
}

}  // namespace kintsugi
