// The report's sentences: faults, rungs and outcomes in plain words, for text that is not yet HTML.
//
// Threads: pure functions.
// Errors: none; a fault, signal or rung without a sentence of its own is named as it is.
#pragma once

#include <string>
#include <vector>

#include "tools/report/compare.h"
#include "tools/report/record.h"

namespace kintsugi {

// "rank 2", "ranks 0 and 2", "ranks 0, 1 and 2", "no rank".
std::string RankWords(const std::vector<Rank>& ranks);

// "Rank 2 was killed".
std::string FaultWords(const ReportedIncident& incident);

// The time of day, as the launcher's host had it, at an instant of the record: "14:03:22.512"; with the date where that
// is another one than the run's first. Where the record does not know, how long after the run's begin: "+ 12.3 s".
std::string TimeOfDay(const RunRecord& record, int64_t ns);
// "in step 41, during update"; empty where the record does not know.
std::string PlaceWords(const ReportedIncident& incident);

// What the rung means for the run: "a new process took the place of the lost one".
std::string RungWords(const std::string& rung);

// The page's title line: how the run ended.
std::string VerdictWords(const RunRecord& record, const RunComparison* comparison);

// One or two sentences below it.
std::string LeadWords(const RunRecord& record, const RunComparison* comparison);

}  // namespace kintsugi
