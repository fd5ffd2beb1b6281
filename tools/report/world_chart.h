// How many ranks took part in the run, over its time: a line with a step at each change, and what changed it.
//
// Threads: pure functions.
// Errors: none; of an incident that the record does not have, no more is said.
#pragma once

#include <cstdint>
#include <string>

#include "tools/report/options.h"
#include "tools/report/record.h"

namespace kintsugi {

// So many took part until then.
uint64_t RanksBefore(const WorldSpan& change);

// With a table of the changes; empty where the run had one world.
std::string WorldChart(const RunRecord& record, const ReportOptions& options);

}  // namespace kintsugi
