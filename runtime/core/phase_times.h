// PhaseTimes: how long the handlers of a phase take, learnt from the times they took before.
//
// The start of a run passes REBUILD, VERIFY and ROLLBACK too, so that these are known before the first incident. A
// phase that was never seen has the longest limit: what was learnt of others says nothing about it. Where all ranks do
// the same in it, those who are done teach what the last ones may take.
// Units: durations.
// Threads: none.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "runtime/base/clock.h"
#include "runtime/core/phase.h"

namespace kintsugi::core {

class PhaseTimes {
 public:
  // `factor` times the longest time seen, at least `least`; a factor of 0: nothing is learnt.
  PhaseTimes(double factor, Duration least) : factor_(factor), least_(least) {}

  // All ranks have finished the phase in this time.
  void Note(Phase phase, Duration took) {
    auto& longest = longest_[static_cast<size_t>(phase)];
    longest = std::max(longest.value_or(took), took);
  }
  // `most`: for a phase that was not seen yet, and never more.
  Duration Limit(Phase phase, Duration most) const {
    const auto& longest = longest_[static_cast<size_t>(phase)];
    if (!longest) return most;
    return Within(*longest, most);
  }
  // For those who still do what others have done in this time.
  Duration Within(Duration took, Duration most) const {
    if (factor_ <= 0) return most;
    const Duration learnt(static_cast<int64_t>(factor_ * static_cast<double>(took.count())));
    return std::min(std::max(learnt, least_), most);
  }

 private:
  double factor_;
  Duration least_;
  std::array<std::optional<Duration>, kPhaseCount> longest_{};
};

}  // namespace kintsugi::core
