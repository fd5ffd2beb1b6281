// The incidents in words: an account of each with its milestones, and the table of what was lost and why that rung.
#pragma once

#include <string>

#include "tools/report/options.h"
#include "tools/report/record.h"

namespace kintsugi {

// One article per incident, as many as options allow.
std::string IncidentAccounts(const RunRecord& record, const ReportOptions& options);

// Lost, detected, streamed, resumed and why, one row per incident.
std::string IncidentTable(const RunRecord& record, const ReportOptions& options);

}  // namespace kintsugi
