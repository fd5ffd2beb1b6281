// trace.json: the run in the Chrome trace event format, which Perfetto opens: one track for the controller and one per
// rank; incidents are spans with their phases nested inside.
//
// Source of the format: Chrome's "Trace Event Format", complete ("X"), instant ("i") and metadata ("M") events.
// Perfetto refuses spans of one track that overlap without nesting, so NestSlices makes them nest.
// Threads: pure functions.
// Errors: none.
// Units: times in the file are whole microseconds from the record's origin: whole, so that rounding cannot make a child
//   outlive its parent.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/report/record.h"

namespace kintsugi {

struct TraceOptions {
  size_t max_steps_per_rank = 2000;  // beyond, steps away from incidents are merged into stretches
  uint32_t max_ranks = 4096;         // tracks; more make no viewer useful
};

// The trace's process and the controller's track; rank r has track kRankTrackBase + r.
inline constexpr int64_t kTraceProcess = 1;
inline constexpr int64_t kControllerTrack = 1;
inline constexpr int64_t kRankTrackBase = 2;

// One span of a track before it is written. A lower layer is meant to enclose a higher one.
struct TraceSlice {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int layer = 0;
  std::string name;
  std::string category;
  nlohmann::ordered_json args = nlohmann::ordered_json::object();
};

// Sorts by start, outer before inner, and shortens spans so that any two are apart or nested: a span of a higher layer
// ends with the one it began in; otherwise the span that began earlier ends where the later one begins (a step ends
// where its incident phase begins). A shortened span keeps its measured length in args["measured_ms"].
std::vector<TraceSlice> NestSlices(std::vector<TraceSlice> slices);

std::string TraceJson(const RunRecord& record, const TraceOptions& options = {});

}  // namespace kintsugi
