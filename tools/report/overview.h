// What a reader wants first: which share of the run's time was useful and what took the rest, and one line per
// incident.
//
// Threads: pure functions.
// Errors: none; what the record does not say is left out.
#pragma once

#include <string>

#include "tools/report/options.h"
#include "tools/report/record.h"

namespace kintsugi {

// A bar over the run's whole time, with words; empty where the record does not know.
std::string TimeShares(const RunRecord& record);

// Each incident with its time of day, linked to its account; empty where there was none.
std::string IncidentIndex(const RunRecord& record, const ReportOptions& options);

}  // namespace kintsugi
