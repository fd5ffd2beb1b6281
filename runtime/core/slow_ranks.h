// SlowRanks: who keeps the others waiting at the first collective of a step, step after step. Reported, never acted on.
//
// What: of every step the instants are compared at which the ranks enter gradient-sync (or a later phase, where that
// one is too short to be seen). A rank is slow when it came later than the median rank by a fifth of a step and by 20
// ms at least, in 12 of the last 16 steps; it is not any more after 4 or fewer.
// Units: durations; time is an argument.
// Limits: instants are as fine as the beats that tell them. A trainer whose forward pass meets in collectives (tensor
// parallelism) makes all ranks of such a group late together.
// Threads: none.
// Invariants: memory is one entry for each rank; a step is judged once all ranks have entered it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "runtime/base/train_phase.h"

namespace kintsugi::core {

class SlowRanks {
 public:
  explicit SlowRanks(int seats) : ranks_(static_cast<size_t>(seats)), awaited_(ranks_.size()) {}

  // All begin anew: a step that was under way says nothing. So many ranks take part from now on.
  void Start(size_t awaited);
  // True: with this place the last rank has entered a step, and there may be news.
  bool OnPlace(Rank rank, const Progress& place, TimePoint now);

  struct News {
    Rank rank;
    bool slow = false;  // false: not any more
    Duration late{};    // behind the median rank, over the newest steps
    int steps = 0;      // in so many of the last 16
  };
  // What changed since it was last asked, for steps of this length.
  std::vector<News> Take(Duration step_time);
  // Of a slow rank: how late it is; nothing for all others.
  std::optional<Duration> LateBy(Rank rank) const;

 private:
  static constexpr int kStepsKept = 16;
  struct Entry {
    std::optional<TimePoint> arrived;  // in `step_`
    uint16_t late_steps = 0;           // a bit for each of the newest steps
    Duration late{};                   // weighted: the newest step counts an eighth
    bool slow = false;
  };
  void Judge();

  std::vector<Entry> ranks_;
  size_t awaited_;
  uint64_t step_ = 0;
  size_t arrived_ = 0;
  std::vector<Duration> lateness_;  // of the step just judged, by rank; empty: nothing new
};

std::string ToString(const SlowRanks::News& news, Duration step_time);

}  // namespace kintsugi::core
