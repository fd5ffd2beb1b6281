// What is told of an incident, by any host of the controller: a line of the log, and a summary for programs.
//
// Errors: none.
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/incident_summary.h"
#include "runtime/core/controller_types.h"

namespace kintsugi {

// Steps that are computed again: those that some rank had begun beyond the step at which all met, the unfinished one
// included. 0 where everybody could finish what was begun.
uint64_t StepsLost(const core::IncidentRecord& record);

// From the fault until all ranks stepped again, or until `now` where they did not.
double DownMilliseconds(const core::IncidentRecord& record, TimePoint now);

// "event=incident id= cause= ranks= rung= down_ms= steps_lost=", for incidents that are over at `now`.
std::string IncidentLine(const core::IncidentRecord& record, TimePoint now);

// "event=unreachable from= to= port=", "event=incident_goes_on id= attempts= for= last=".
std::string UnreachableLine(const core::RoadClosed& road);
// `seats`: the most ranks that ever take part.
std::string CrewLine(const core::CrewChanged& crew, int seats);
std::string GoesOnLine(const core::AttemptsGrow& grown);

// "event=hang why= ranks= text=", and after it a line for those that stand alike: "event=hang_stack ranks= stack=".
std::vector<std::string> HangLines(const core::Blame& blame);

// What everybody is told of it. `fault` is the signal: who injected it knows better.
IncidentSummary Summarize(const core::IncidentRecord& record, TimePoint now);

// The same as JSON, with `over` beside it; a step or a rung that was not chosen yet is null.
nlohmann::json IncidentJson(const core::IncidentRecord& record, bool over, TimePoint now);

}  // namespace kintsugi
