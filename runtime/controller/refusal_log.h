// RefusalLog: lines about what strangers and broken peers did, at most so many a second. A stranger decides how often
// it is refused; it must not decide how much is written.
//
// Threads: one. Time: monotonic instants come in as arguments.
// Invariants: a window has at most kLinesPerWindow lines and one that says how many were left out before it; a line has
// at most kWhyBytesMax bytes of the reason, which may quote what the peer said.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"

namespace kintsugi {

class RefusalLog {
 public:
  static constexpr uint64_t kLinesPerWindow = 20;
  static constexpr size_t kWhyBytesMax = 500;
  static constexpr Duration kWindow = std::chrono::seconds(1);

  explicit RefusalLog(std::shared_ptr<LogSink> sink) : sink_(std::move(sink)) {}

  void Write(std::string_view event, const std::string& peer, const std::string& why, TimePoint now);

 private:
  const std::shared_ptr<LogSink> sink_;
  TimePoint window_began_;
  uint64_t lines_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace kintsugi
