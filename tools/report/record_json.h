// The records as JSON: summary.json (the published schema 1) and record.json (everything, so that a page can be
// rebuilt).
//
// Threads: pure functions.
// Errors: writing has none (strings that are not UTF-8 are mended with U+FFFD, numbers that are not finite become
// null).
//   Reading answers kInvalidArgument and names the field, what was expected there and what to do.
// Units: as in record.h.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/base/result.h"
#include "tools/report/record.h"

namespace kintsugi {

inline constexpr int kSummarySchema = 1;
inline constexpr int kRecordSchema = 1;

// Keys come in the order of the schema, for the reader's sake. Converts to nlohmann::json where that is wanted. Every
// list is present; a point of time that was not reached is null.
nlohmann::ordered_json SummaryJson(const RunRecord& record);

// Everything in `record`. RecordFromText of it equals `record` where its strings are valid UTF-8 and its losses finite.
nlohmann::ordered_json RecordJson(const RunRecord& record);

// `place`: whose text it is, for messages.
Result<RunRecord> RecordFromText(std::string_view text, const std::string& place = "");

// Reads a record.json; the message names the path. kNotFound where there is none.
Result<RunRecord> ReadRecord(const std::filesystem::path& path);

}  // namespace kintsugi
