#include "tools/logs/log_form.h"

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "tools/logs/log_fields.h"

namespace kintsugi::logs {
namespace {

using nlohmann::ordered_json;

constexpr const char* kColorOff = "\x1b[m";

const char* ColorOf(LogLevel level) {
  if (level == LogLevel::kError) return "\x1b[31m\x1b[1m";
  return level == LogLevel::kWarning ? "\x1b[33m\x1b[1m" : "\x1b[32m";
}

void Add(const std::string& name, const std::string& value, ordered_json* to) {
  if (IsNumberField(name)) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc() && end == value.data() + value.size()) {
      (*to)[name] = number;
      return;
    }
  }
  (*to)[name] = value;
}

void AddAll(std::string_view line, ordered_json* to) {
  // Of a field that is there twice the first counts: whose line it is stands before what it says.
  for (const auto& [name, value] : ReadLogFields(line))
    if (!to->contains(name)) Add(name, value, to);
}

std::string Dump(const ordered_json& line) {
  return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string_view LevelName(LogLevel level) {
  constexpr std::string_view kNames[] = {"debug", "info", "warning", "error"};
  return kNames[static_cast<size_t>(level)];
}

std::string TimeText(std::chrono::system_clock::time_point at) {
  const auto since = at.time_since_epoch();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(since).count() % 1000;
  const std::time_t seconds = std::chrono::system_clock::to_time_t(at);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char day[32], text[64];
  std::strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &parts);
  const long minutes = std::labs(parts.tm_gmtoff) / 60;
  std::snprintf(text, sizeof text, "%s.%03d%c%02ld:%02ld", day, static_cast<int>(milliseconds),
                parts.tm_gmtoff < 0 ? '-' : '+', minutes / 60, minutes % 60);
  return text;
}

std::string TextLine(std::chrono::system_clock::time_point at, LogLevel level, std::string_view who,
                     std::string_view line, bool colored) {
  const std::string_view name = LevelName(level);
  const std::string shown = colored ? ColorOf(level) + std::string(name) + kColorOff : std::string(name);
  return TimeText(at).append(" ").append(shown).append(" ").append(who).append(" ").append(line).append("\n");
}

std::string JsonLine(std::chrono::system_clock::time_point at, LogLevel level, std::string_view who,
                     std::string_view line) {
  ordered_json out{{"time", TimeText(at)}, {"level", LevelName(level)}};
  AddAll(who, &out);
  AddAll(line, &out);
  return Dump(out);
}

std::string JsonOutputLine(std::chrono::system_clock::time_point at, std::string_view who, std::optional<Rank> rank,
                           OutputStream stream, std::string_view line) {
  ordered_json out{{"time", TimeText(at)}};
  AddAll(who, &out);
  if (rank)
    out["rank"] = rank->value();
  else
    out["spare"] = true;
  out["stream"] = stream == OutputStream::kStdout ? "stdout" : "stderr";
  out["line"] = line;
  return Dump(out);
}

}  // namespace kintsugi::logs
