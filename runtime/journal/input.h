// Input: whatever goes into a ControllerCore, and what came out of it, as a journal keeps it.
//
// Threads: values; an encoder or decoder belongs to one thread.
// Units: instants are monotonic and, but for those that an event itself carries, whole microseconds.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/core/controller_types.h"
#include "runtime/core/policy.h"

namespace kintsugi::journal {

inline constexpr uint32_t kVersion = 1;
// What decides: a recording of another build may have another outcome.
std::string Build();

struct Preamble {
  uint32_t version = kVersion;
  std::string build;
  core::Policy policy;
  Term term;
};

struct Start {};
struct ArmedInjections {  // ControllerCore::SetInjections
  Rank rank;
  std::vector<std::string> injections;
};
struct Input {
  TimePoint now;
  std::variant<Start, ArmedInjections, core::ControllerEvent> what;
  uint32_t actions = 0;  // how many came out, and
  uint64_t digest = 0;   // with actions: of all so far
  bool threw = false;    // the core failed a check
};

enum class EndReason : uint8_t {
  kEnded = 0,    // the controller was taken down in order
  kFull = 1,     // the journal's limit was reached
  kTooSlow = 2,  // what takes the bytes could not keep up
};

}  // namespace kintsugi::journal
