// Where an incident lies in time, as far as its record tells.
#pragma once

#include <cstdint>

#include "tools/report/record.h"

namespace kintsugi {

struct Extent {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// From the fault (or the earliest span, should a clock have been read late) to the last instant the record knows of.
Extent IncidentExtent(const IncidentRecord& incident);

// The instant a cumulative time of `incident` stands for. A number beyond any clock is held to the largest instant.
int64_t InstantOf(const IncidentRecord& incident, double milliseconds_after_fault);

}  // namespace kintsugi
