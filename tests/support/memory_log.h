// MemoryLogSink: keeps the lines that it is given.
//
// Threads: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/base/mutex.h"

namespace kintsugi {

class MemoryLogSink final : public LogSink {
 public:
  void Write(LogLevel, std::string_view line) override {
    const MutexLock lock(mutex_);
    lines_.emplace_back(line);
  }
  std::vector<std::string> lines() const {
    const MutexLock lock(mutex_);
    return lines_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> lines_ KINTSUGI_GUARDED_BY(mutex_);
};

}  // namespace kintsugi
