// Records: what a journal's frames hold (journal.proto is written from this).
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "runtime/journal/fields.h"

namespace kintsugi::journal {

// The first record. `policy`: as words (text.h).
struct HeaderRecord {
  uint32_t version = 0;
  std::string build;
  std::string policy;
  uint64_t term = 0;
  uint64_t controller_id = 0;
};
// One input, as bytes of its own: an InputSeal, and an alternative of InputBody.
struct InputRecord {
  std::string bytes;
};
// Ticks and beats that nothing came out of, one entry in `what` and in `after_us` for each.
struct QuietRecord {
  std::vector<uint32_t> after_us;
  std::vector<uint32_t> what;    // 0: a tick; else 1 + 4 * rank + 2 * (its place moved) + (its count went up by one)
  std::vector<uint64_t> places;  // for each that moved, as a progress word
};
// The last one.
struct EndRecord {
  EndReason why = EndReason::kEnded;
};
using RecordBody = std::variant<std::monostate, HeaderRecord, InputRecord, QuietRecord, EndRecord>;

struct InputSeal {
  uint64_t after_us = 0;  // since the input before
  uint32_t actions = 0;   // what came out of it: how many, and
  uint64_t digest = 0;    // with actions: of all that came out so far
  bool threw = false;     // a failed check ended the core in it
};
// The run begins: the monotonic instant.
struct StartedAt {
  TimePoint at;
};
// A frame of runtime/wire, of no job.
struct AgentSaid {
  std::string frame;
};
// Every event but FromAgent, which is the last one here.
template <typename Events>
struct InputBodyOf;
template <typename... Event>
struct InputBodyOf<std::variant<core::FromAgent, Event...>> {
  using Type = std::variant<std::monostate, StartedAt, AgentSaid, ArmedInjections, Event...>;
};
using InputBody = InputBodyOf<core::ControllerEvent>::Type;

}  // namespace kintsugi::journal

namespace kintsugi::wire {

using Why = Scalar<journal::EndReason, Type::kUint32, "reason", 0, static_cast<uint64_t>(journal::EndReason::kTooSlow)>;

KINTSUGI_MESSAGE(1, "header", journal::HeaderRecord, (version, 1), (build, 2), (policy, 3), (term, 4),
                 (controller_id, 5))
KINTSUGI_BARE(2, "input", journal::InputRecord, (bytes, 2))
KINTSUGI_MESSAGE(3, "quiet", journal::QuietRecord, (after_us, 1), (what, 2), (places, 3))
KINTSUGI_MESSAGE(4, "end", journal::EndRecord, (why, 1, Why))

KINTSUGI_FIELDS(journal::InputSeal, (after_us, 10), (actions, 11), (digest, 12, Fixed), (threw, 13))
KINTSUGI_BARE(1, "started", journal::StartedAt, (at, 1))
KINTSUGI_BARE(2, "from_agent", journal::AgentSaid, (frame, 2))

}  // namespace kintsugi::wire
