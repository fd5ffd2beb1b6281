// Where an incident lies in time, as far as its record tells.
#pragma once

#include <cstdint>

#include "tools/report/record.h"

namespace kintsugi {

struct TimeExtent {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// `ns`, held within +-4 * 10^18: far beyond any uptime, and differences of two still fit. A record that was read from a
// file may hold anything.
int64_t Held(int64_t ns);

// From `start_ns` to `end_ns`, whatever they are.
double MsBetween(int64_t start_ns, int64_t end_ns);

// From the fault (or the earliest span, should a clock have been read late) to the last instant the record knows of.
TimeExtent IncidentExtent(const ReportedIncident& incident);

// The instant a cumulative time of `incident` stands for. A number beyond any clock is held to the largest instant.
int64_t InstantOf(const ReportedIncident& incident, double milliseconds_after_fault);

}  // namespace kintsugi
