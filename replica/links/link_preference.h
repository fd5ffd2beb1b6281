// LinkPreference: over what two ranks exchange state.
//
// Threads: a value.
#pragma once

#include <cstdint>

namespace kintsugi {

enum class LinkPreference : uint8_t {
  kAutomatic,
  kSharedMemory,  // kFailedPrecondition where it is not possible
  kTcp,
  kNccl,  // else TCP
};

}  // namespace kintsugi
