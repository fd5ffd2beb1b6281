// The logging seam: drivers write structured lines to a sink they are given; programs plug spdlog in, tests a vector.
//
// Threads: a sink must accept calls from any thread.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/export.h"
#include "runtime/base/mutex.h"

namespace kintsugi {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

class KINTSUGI_EXPORT LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void Write(LogLevel level, std::string_view line) = 0;
};

// Drops everything: what a guest library does unless its host asks for more.
KINTSUGI_EXPORT std::shared_ptr<LogSink> NullLogSink();

// Keeps lines in memory, for tests.
class KINTSUGI_EXPORT MemoryLogSink final : public LogSink {
 public:
  void Write(LogLevel level, std::string_view line) override;
  std::vector<std::string> lines() const;

 private:
  mutable Mutex mutex_;
  std::vector<std::string> lines_ KINTSUGI_GUARDED_BY(mutex_);
};

// Builds "event=NAME key=value ..."; values with spaces are quoted.
KINTSUGI_EXPORT std::string LogLine(std::string_view event,
                                    std::initializer_list<std::pair<std::string_view, std::string>> fields);

}  // namespace kintsugi
