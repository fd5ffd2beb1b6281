// What a line of LogLine (runtime/base/log.h) says, as names and values again. Pure.
//
// Errors: none: what is no field ("event=NAME key=value ...") is given under the name "text".
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kintsugi::logs {

using LogFields = std::vector<std::pair<std::string, std::string>>;

LogFields ReadLogFields(std::string_view line);

// Names whose values are whole numbers in every line: in JSON they are numbers, where they are ("none" stays text).
bool IsNumberField(std::string_view name);

}  // namespace kintsugi::logs
