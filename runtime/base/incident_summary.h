// IncidentSummary: what everybody is told of an incident, under the names of the published schema: summary.json, the
// answer to `incidents`, the events of the C ABI. It is spelt here and nowhere else.
//
// Errors: none. Strings come from outside and may hold anything; what JSON cannot hold becomes U+FFFD.
// Units: every *_ms counts from the instant of the fault to the last rank that reached the point; nullopt where it was
// not reached.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/ids.h"

namespace kintsugi {

// One rung of the recovery ladder and why it was taken or refused, in words.
struct ToldReason {
  std::string rung;
  std::string reason;
  bool operator==(const ToldReason&) const = default;
};

struct IncidentSummary {
  uint64_t id = 0;
  std::string signal;       // what was noticed first
  std::string fault;        // what it was: "kill", "throw", ...
  std::vector<Rank> ranks;  // root causes, not the ranks that merely felt it
  std::string cause;        // told in words: signal, exit code, last lines of error output
  Step step;                // S: where all live ranks met
  uint32_t attempts = 1;
  Term term;
  Generation generation;            // the one the run went on in
  std::string path;                 // ladder rung
  std::vector<ToldReason> reasons;  // cheapest rung first
  std::optional<double> detected_ms;
  std::optional<double> parked_ms;
  std::optional<double> rebuilt_ms;
  std::optional<double> repaired_ms;
  std::optional<double> resumed_ms;
  uint64_t bytes_streamed = 0;
  std::optional<double> stream_gbps;  // 10^9 bytes per second; nullopt where nothing was streamed
  std::vector<Rank> sources;
  double down_ms = 0;       // until all stepped again, or until the end
  uint64_t steps_lost = 0;  // begun and computed again, the unfinished one included
  bool operator==(const IncidentSummary&) const = default;
};

// In the order of the schema. A number that is not finite is null.
nlohmann::ordered_json ToJson(const IncidentSummary& incident);

}  // namespace kintsugi
