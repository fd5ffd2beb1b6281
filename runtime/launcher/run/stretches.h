// Stretches: how long something lasted in all that comes and goes, as it is looked at every few milliseconds.
//
// Threads: none.
// Errors: none.
// Invariants: its size is bounded: what was so far back cannot be taken out again.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"

namespace kintsugi {

class Stretches {
 public:
  // Whether it lasts now. What lies before `counted_from` is not counted.
  void See(bool lasts, TimePoint now, TimePoint counted_from) {
    if (lasts && !since_) since_ = now;
    if (!lasts) End(now, counted_from);
  }
  void End(TimePoint at, TimePoint counted_from) {
    if (!since_) return;
    const TimePoint from = std::max(*std::exchange(since_, std::nullopt), counted_from);
    if (at <= from) return;
    if (over_.size() == kOverMax) over_.erase(over_.begin(), over_.begin() + kOverMax / 2);
    over_.emplace_back(from, at);
    total_ += at - from;
  }
  // How much of those that are over and not settled lies after `from`. They are settled by this.
  Duration SettleAfter(TimePoint from) {
    Duration after{};
    for (const auto& [begin, end] : std::exchange(over_, {}))
      after += std::max(end - std::max(begin, from), Duration());
    return after;
  }
  void TakeOut(Duration duration) { total_ -= duration; }
  void Forget() { total_ = {}, over_.clear(); }
  // The one that still lasts included.
  Duration Total(TimePoint now, TimePoint counted_from) const {
    return since_ ? total_ + std::max(now - std::max(*since_, counted_from), Duration()) : total_;
  }

 private:
  static constexpr size_t kOverMax = 1024;
  Duration total_{};
  std::optional<TimePoint> since_;
  std::vector<std::pair<TimePoint, TimePoint>> over_;  // in total_, since they were last settled
};

}  // namespace kintsugi
