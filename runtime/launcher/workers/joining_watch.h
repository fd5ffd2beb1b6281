// JoiningWatch: processes that have been given a place and freeze before they are in their loop: nobody else watches
// them yet.
//
// A process that has begun to beat counts from its newest beat; one that has not is on its way, which may take as long
// as it does, unless a signal has stopped it.
// Threads: none; pure. Time: monotonic instants come in as arguments.
// Units: durations.
// Invariants: time in which the launcher itself slept is nobody's silence.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"

namespace kintsugi {

class JoiningWatch {
 public:
  // A look that comes later than this shows that this process was asleep.
  static constexpr Duration kAsleep = std::chrono::milliseconds(500);

  // Before the first look. A quarter more than the ranks themselves are allowed: their agents are only starting.
  void SetSilence(Duration silence) { limit_ = silence + silence / 4; }
  Duration limit() const { return limit_; }

  // A look at all of them begins.
  void Look(TimePoint now);
  struct Seen {
    uint64_t step = 0;              // from 1 on the controller watches it
    std::optional<TimePoint> beat;  // the newest; nothing: it has not begun to
    std::function<bool()> stopped;  // whether a signal has stopped it; asked only where it does not beat
  };
  // True: it has been frozen for the limit.
  bool IsFrozen(Rank rank, const Seen& seen, TimePoint now);
  // Another process has its place.
  void Forget(Rank rank) { stopped_since_.erase(rank); }

 private:
  Duration limit_{};
  TimePoint last_look_, awake_since_;
  std::map<Rank, TimePoint> stopped_since_;  // seen so, before it could beat
};

}  // namespace kintsugi
