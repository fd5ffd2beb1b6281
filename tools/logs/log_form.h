// How a line is written: as text for people, or as one JSON object for a program. Pure but for the clock's zone.
//
//   2026-11-22T14:03:22.512+00:00 warning node=0 job=J event=incident id=1 gen=3 ...
//   {"time":"2026-11-22T14:03:22.512+00:00","level":"warning","node":"0","job":"J","event":"incident","id":1,"gen":3}
//
// Threads: any.
// Errors: none; bytes that are no UTF-8 are shown as replacement characters in JSON.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/ids.h"
#include "runtime/base/log.h"
#include "runtime/process/process_spec.h"

namespace kintsugi::logs {

std::string_view LevelName(LogLevel level);  // "warning"

// ISO 8601 with milliseconds and the zone.
std::string TimeText(std::chrono::system_clock::time_point at);

// `who` is a LogLine's fields: "node=0 job=J". Newline included.
std::string TextLine(std::chrono::system_clock::time_point at, LogLevel level, std::string_view who,
                     std::string_view line, bool colored = false);
std::string JsonLine(std::chrono::system_clock::time_point at, LogLevel level, std::string_view who,
                     std::string_view line);
// A line that a worker printed: {"time", "node", "job", "rank" or "spare", "stream", "line"}.
std::string JsonOutputLine(std::chrono::system_clock::time_point at, std::string_view who, std::optional<Rank> rank,
                           OutputStream stream, std::string_view line);

}  // namespace kintsugi::logs
