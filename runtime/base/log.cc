#include "runtime/base/log.h"

namespace kintsugi {
namespace {

class NullSink final : public LogSink {
 public:
  void Write(LogLevel, std::string_view) override {}
};

}  // namespace

std::shared_ptr<LogSink> NullLogSink() { return std::make_shared<NullSink>(); }

std::string LogLine(std::string_view event, std::initializer_list<std::pair<std::string_view, std::string>> fields) {
  std::string line = "event=" + std::string(event);
  for (const auto& [key, value] : fields) {
    line += ' ';
    line += key;
    line += '=';
    if (value.find_first_of(" \"\n") == std::string::npos && !value.empty()) {
      line += value;
      continue;
    }
    line += '"';
    for (char c : value) {
      if (c == '"' || c == '\\') line += '\\';
      line += c == '\n' ? ' ' : c;
    }
    line += '"';
  }
  return line;
}

}  // namespace kintsugi
