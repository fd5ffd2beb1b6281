// FailureDetector: which ranks have been silent for too long.
//
// Time is an argument. When our own tick comes late by d, every deadline is extended by d: a stopped controller (a
// debugger, a suspended machine) must not declare the whole world dead.
#pragma once

#include <optional>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"

namespace kintsugi::core {

class FailureDetector {
 public:
  explicit FailureDetector(Duration silence) : silence_(silence) {}

  // Starts or restarts the watch over a rank.
  void Watch(Rank rank, TimePoint now);
  void Forget(Rank rank);
  // A repeated count is no sign of life.
  void OnBeat(Rank rank, uint64_t count, TimePoint now);
  // Since its newest sign of life; nothing of a rank that nobody watches.
  std::optional<Duration> SinceBeat(Rank rank, TimePoint now) const;
  // Ranks that have been silent for the limit, ascending. Call regularly.
  std::vector<Rank> OnTick(TimePoint now);

 private:
  struct Watched {
    uint64_t count = 0;
    TimePoint last = TimePoint::Max();  // nobody watches the rank
  };
  bool Watches(Rank rank) const {
    return static_cast<size_t>(rank.value()) < watched_.size() && At(rank).last != TimePoint::Max();
  }
  const Watched& At(Rank rank) const { return watched_[static_cast<size_t>(rank.value())]; }
  Watched& At(Rank rank) { return watched_[static_cast<size_t>(rank.value())]; }

  Duration silence_;
  std::vector<Watched> watched_;  // by rank: looked through at every tick
  TimePoint last_tick_;
  TimePoint next_look_;  // before this nobody can have been silent for the limit
};

}  // namespace kintsugi::core
