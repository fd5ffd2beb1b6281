// Codec: control messages <-> bytes of one frame.
//
// Errors: Decode gives kDataLoss for bytes that are no envelope, kInvalidArgument for values outside their range (an
// unknown phase, a negative rank, a foreign job); nothing else is trusted to be checked later.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/core/messages.h"
#include "runtime/wire/rank_report.h"

namespace kintsugi::wire {

struct AgentFrame {
  core::Header header;
  std::variant<core::AgentMessage, RankReport> message;
};
struct ControllerFrame {
  core::Header header;
  core::ControllerMessage message;
};

// `sent`: when, by the clock of the instants in the message; none: whoever decodes it has the same clock.
std::string Encode(const std::string& job, const core::Header& header, const core::AgentMessage& message,
                   TimePoint sent = {});
std::string Encode(const std::string& job, const core::Header& header, const RankReport& report);
std::string Encode(const std::string& job, const core::Header& header, const core::ControllerMessage& message);

// `now`: another host has another clock, so where the frame says when it was sent, its instants become those of this one, as
// long ago as they were then. None: they are read as they are.
Result<AgentFrame> DecodeFromAgent(const std::string& job, std::string_view bytes, TimePoint now = {});
Result<ControllerFrame> DecodeFromController(const std::string& job, std::string_view bytes);

}  // namespace kintsugi::wire
