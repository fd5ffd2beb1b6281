// LineFold: identical lines of the log within one second become one with a count. The first passes at once; those like
// it within the second are counted, and told as one line with `repeated=N` when it is over.
//
// Threads: none; pure.
// Errors: none.
// Invariants: at most kLinesMax lines are remembered; beyond them all lines pass.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"

namespace kintsugi::logs {

class LineFold {
 public:
  static constexpr Duration kWithin = std::chrono::seconds(1);
  static constexpr size_t kLinesMax = 64;
  using Line = std::pair<LogLevel, std::string>;

  // Whether it is to be written now.
  bool Passes(LogLevel level, std::string_view line, TimePoint now);
  // What is due by now: counts of lines whose second is over.
  std::vector<Line> TakeDue(TimePoint now);
  // When something will be due; none: nothing is held back.
  std::optional<TimePoint> next() const;

 private:
  struct Seen {
    TimePoint first;
    uint64_t held = 0;
  };
  std::map<Line, Seen> seen_;
};

}  // namespace kintsugi::logs
