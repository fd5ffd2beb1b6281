// Fields as words: `step=7 valid=no ranks=[0,2] place=(step=3 phase=forward)`. A field that has its default is left
// out, but for those that say whom and what a line is about.
//
// Lists are [..], structs (..), texts bare or in quotes with \xNN escapes, durations and instants in milliseconds
// (`limit=20ms`; instants count from the beginning of the run). Read(Write(v)) == v.
// Errors: kInvalidArgument names the field and what stands there.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/result.h"
#include "runtime/core/controller_types.h"
#include "runtime/core/policy.h"
#include "runtime/journal/input.h"

namespace kintsugi::journal {

std::string WriteFields(const core::Policy& policy);
// What is not named stays as in `base`. The policy is valid as a whole.
Result<core::Policy> ReadPolicy(std::string_view text, core::Policy base = {});

// One event: `rank 1 inc 2 gen 3: parked state=committed step=7`, `process_exited rank=1 incarnation=2 cause="..."`,
// `tick`. The term is written only where it is not `term`.
std::string WriteEvent(const core::ControllerEvent& event, Term term, TimePoint origin);
Result<core::ControllerEvent> ReadEvent(std::string_view text, Term term, TimePoint origin);

// An input: an event, `start`, or `injections rank=1 injections=["1 kill:1@5"]`. Its instant is not written.
std::string WriteInput(const Input& input, Term term, TimePoint origin);
Result<Input> ReadInput(std::string_view text, Term term, TimePoint origin);

// One action, for people and for comparison: `-> rank 1 inc 2 gen 3: lock`, `spawn rank=1 incarnation=3`. An incident
// that is closed takes a line for each rung considered too; its spans are left out.
std::vector<std::string> WriteAction(const core::ControllerAction& action, Term term, TimePoint origin);

// An incident that is over, whole and in one line.
std::string WriteRecord(const core::IncidentRecord& record, TimePoint origin);
Result<core::IncidentRecord> ReadRecord(std::string_view text, TimePoint origin);

// Milliseconds with three digits of what the microseconds are.
std::string WriteMilliseconds(Duration duration);
Result<Duration> ReadMilliseconds(std::string_view text);

}  // namespace kintsugi::journal
