// The one line at warning level that tells of an incident, whoever hosts the controller.
//
// Errors: none.
// Threads: pure functions.
#pragma once

#include <string>

#include "runtime/core/controller_types.h"

namespace kintsugi {

// Steps that are computed again: those that some rank had begun beyond the step at which all met, the unfinished one
// included. 0 where everybody could finish what was begun.
uint64_t StepsLost(const core::IncidentRecord& record);

// From the fault until all ranks stepped again, or until `now` where they did not.
double DownMilliseconds(const core::IncidentRecord& record, TimePoint now);

// "event=incident id= cause= ranks= rung= down_ms= steps_lost=", for incidents that are over at `now`.
std::string IncidentLine(const core::IncidentRecord& record, TimePoint now);

}  // namespace kintsugi
