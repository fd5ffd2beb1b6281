// Messages in words, for the event log: the same words on every machine.
#pragma once

#include <string>

#include "runtime/core/messages.h"

namespace kintsugi::sim {

// The job's name in every virtual frame.
inline const std::string kJob = "sim";

std::string Describe(const core::Header& header, const core::AgentMessage& message);
std::string Describe(const core::Header& header, const core::ControllerMessage& message);

}  // namespace kintsugi::sim
