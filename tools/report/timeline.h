// One incident drawn in time: a lane for the controller and one for each rank, phases as labelled bars.
//
// All of it is HTML placed in percent, so that it fits any width; the same spans follow as a table for those who cannot
// or do not want to look.
#pragma once

#include <string>

#include "tools/report/options.h"
#include "tools/report/record.h"

namespace kintsugi {

std::string IncidentTimeline(const RunRecord& record, const ReportedIncident& incident, const ReportOptions& options);

// The spans of `incident` as a table that opens on demand.
std::string IncidentSpanTable(const ReportedIncident& incident, const ReportOptions& options);

}  // namespace kintsugi
