#include "runtime/core/messages.h"

#include <array>

namespace kintsugi::core {

std::string_view FaultKindName(FaultKind kind) {
  constexpr std::array<std::string_view, 12> kNames = {
      "process_exit", "silence",         "connection_lost", "exception", "comm_error", "memory_low",
      "memory_high",  "digest_mismatch", "handler_failed",  "stalled",   "hang",       "operator"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace kintsugi::core
