// RefusalLog: lines about what strangers and broken peers did, within a LineBudget.
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
#include "runtime/controller/line_budget.h"

namespace kintsugi {

class RefusalLog {
 public:
  static constexpr uint64_t kLinesPerWindow = LineBudget::kLinesPerWindow;
  static constexpr size_t kWhyBytesMax = 500;
  static constexpr Duration kWindow = LineBudget::kWindow;

  explicit RefusalLog(std::shared_ptr<LogSink> sink) : sink_(std::move(sink)) {}

  void Write(std::string_view event, const std::string& peer, const std::string& why, TimePoint now);

 private:
  const std::shared_ptr<LogSink> sink_;
  LineBudget budget_;
};

}  // namespace kintsugi
