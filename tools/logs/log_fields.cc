#include "tools/logs/log_fields.h"

#include <algorithm>
#include <array>

namespace kintsugi::logs {
namespace {

constexpr std::array<std::string_view, 28> kNumberFields{"after_s",
                                                         "attempt",
                                                         "attempts",
                                                         "away_ms",
                                                         "connections",
                                                         "count",
                                                         "device",
                                                         "down_ms",
                                                         "elapsed_ms",
                                                         "exit",
                                                         "failed_so_far",
                                                         "gen",
                                                         "id",
                                                         "incarnation",
                                                         "incident",
                                                         "last_good_age_s",
                                                         "last_good_step",
                                                         "lines",
                                                         "lines_lost",
                                                         "lost",
                                                         "pid",
                                                         "processes",
                                                         "rank",
                                                         "repeated",
                                                         "start",
                                                         "step",
                                                         "steps_lost",
                                                         "term"};

bool IsName(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// The value that begins at `at`, which moves behind it.
std::string TakeValue(std::string_view line, size_t* at) {
  std::string value;
  if (*at >= line.size() || line[*at] != '"') {
    const size_t end = std::min(line.find(' ', *at), line.size());
    value = line.substr(*at, end - *at);
    *at = end;
    return value;
  }
  for (++*at; *at < line.size() && line[*at] != '"'; ++*at) {
    if (line[*at] == '\\' && *at + 1 < line.size()) ++*at;
    value += line[*at];
  }
  if (*at < line.size()) ++*at;  // the closing quote
  return value;
}

}  // namespace

LogFields ReadLogFields(std::string_view line) {
  LogFields fields;
  for (size_t at = 0; at < line.size();) {
    if (line[at] == ' ') {
      ++at;
      continue;
    }
    const size_t equals = line.find('=', at);
    if (equals == std::string_view::npos || !IsName(line.substr(at, equals - at))) {
      fields.emplace_back("text", line.substr(at));
      return fields;
    }
    std::string name(line.substr(at, equals - at));
    at = equals + 1;
    std::string value = TakeValue(line, &at);
    fields.emplace_back(std::move(name), std::move(value));
  }
  return fields;
}

bool IsNumberField(std::string_view name) {
  return std::find(kNumberFields.begin(), kNumberFields.end(), name) != kNumberFields.end();
}

}  // namespace kintsugi::logs
