// GenerationLog: a log whose lines name the membership that they belong to, where they do not say one themselves.
//
// Threads: any.
// Ownership: shares the log that it writes to.
// Errors: none.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/ids.h"
#include "runtime/base/log.h"

namespace kintsugi {

class GenerationLog final : public LogSink {
 public:
  explicit GenerationLog(std::shared_ptr<LogSink> to) : to_(std::move(to)) {}

  // Lines from now on are of this one; an older one changes nothing.
  void Set(Generation generation) {
    uint64_t known = generation_.load();
    while (known < generation.value() && !generation_.compare_exchange_weak(known, generation.value())) {
    }
  }

  void Write(LogLevel level, std::string_view line) override {
    const uint64_t generation = generation_.load();
    if (generation == 0 || line.find(" gen=") != std::string_view::npos) return to_->Write(level, line);
    to_->Write(level, std::string(line) + " gen=" + std::to_string(generation));
  }

 private:
  const std::shared_ptr<LogSink> to_;
  std::atomic<uint64_t> generation_{0};  // 0: none yet
};

}  // namespace kintsugi
