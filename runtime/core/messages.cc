#include "runtime/core/messages.h"

#include <array>

namespace kintsugi::core {

std::string_view FaultKindName(FaultKind kind) {
  constexpr std::array<std::string_view, 14> kNames = {
      "process_exit", "silence",     "connection_lost", "exception",      "comm_error",
      "memory_low",   "memory_high", "digest_mismatch", "handler_failed", "stalled",
      "hang",         "operator",    "controller_lost", "refused"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view StandingName(Standing standing) {
  constexpr std::array<std::string_view, 4> kNames = {"new", "holds", "locked", "running"};
  return kNames[static_cast<size_t>(standing)];
}

}  // namespace kintsugi::core
