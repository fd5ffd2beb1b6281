// The logging seam: drivers write structured lines to a sink they are given; programs plug spdlog in, tests a vector.
//
// Threads: a sink must accept calls from any thread.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/export.h"

namespace kintsugi {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

class KINTSUGI_EXPORT LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void Write(LogLevel level, std::string_view line) = 0;
};

// Drops everything: what a guest library does unless its host asks for more.
KINTSUGI_EXPORT std::shared_ptr<LogSink> NullLogSink();

// Builds "event=NAME key=value ..."; values with spaces are quoted.
KINTSUGI_EXPORT std::string LogLine(std::string_view event,
                                    std::initializer_list<std::pair<std::string_view, std::string>> fields);

}  // namespace kintsugi
