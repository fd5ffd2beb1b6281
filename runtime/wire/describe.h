// Describe: a message and whose it is, as one line: `rank 1 inc 2 gen 3: parked state=committed step=7`. Nothing here names
// a message or a field: the words are the list's.
//
// The term is written only where it is not `term`; instants count from the writer's origin.
// Threads: pure functions.
#pragma once

#include <string>

#include "runtime/core/messages.h"
#include "runtime/wire/words.h"

namespace kintsugi::wire {

std::string Describe(const core::Header& header, const core::AgentMessage& message, Term term,
                     const WordWriter& writer);
std::string Describe(const core::Header& header, const core::ControllerMessage& message, Term term,
                     const WordWriter& writer);

}  // namespace kintsugi::wire
