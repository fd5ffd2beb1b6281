// LineBudget: at most so many lines of a log in a window of time. What is written about decides how often there is
// something to write; it must not decide how much is written.
//
// Threads: one. Time: monotonic instants come in as arguments.
// Invariants: a window has at most kLinesPerWindow lines, and its first Ask says how many were left out before it.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "runtime/base/clock.h"

namespace kintsugi {

class LineBudget {
 public:
  static constexpr uint64_t kLinesPerWindow = 20;
  static constexpr Duration kWindow = std::chrono::seconds(1);

  struct Answer {
    bool write = false;
    uint64_t left_out = 0;  // lines that were refused since the last window began
  };
  Answer Ask(TimePoint now) {
    Answer answer;
    if (now - window_began_ >= kWindow) {
      answer.left_out = std::exchange(left_out_, 0);
      window_began_ = now;
      lines_ = 0;
    }
    answer.write = lines_ < kLinesPerWindow;
    answer.write ? ++lines_ : ++left_out_;
    return answer;
  }

 private:
  TimePoint window_began_;
  uint64_t lines_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace kintsugi
