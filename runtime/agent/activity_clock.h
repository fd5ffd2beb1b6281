// ActivityClock: since when the trainer has been in what takes longer than a step, and until when it may be.
//
// Threads: Set is the trainer's; the agent's thread asks.
// Units: nanoseconds on the monotonic clock.
#pragma once

#include <atomic>

#include "runtime/base/clock.h"
#include "runtime/base/train_phase.h"

namespace kintsugi {

class ActivityClock {
 public:
  struct Reading {
    TimePoint began;     // the outermost
    TimePoint deadline;  // the nearest limit that the trainer has set itself; Max: none
  };
  void Set(const Reading& reading) {
    began_ns_.store(reading.began.nanoseconds(), std::memory_order_relaxed);
    deadline_ns_.store(reading.deadline.nanoseconds(), std::memory_order_relaxed);
  }
  Reading Read() const {
    return {TimePoint(Duration(began_ns_.load(std::memory_order_relaxed))),
            TimePoint(Duration(deadline_ns_.load(std::memory_order_relaxed)))};
  }
  // Whether what an incident interrupts is to be waited for: `limit` is of all activities but a section.
  bool IsBusy(Activity activity, Duration limit, TimePoint now) const {
    const Reading reading = Read();
    if (IsPartOfStep(activity) || now >= reading.deadline) return false;
    return activity == Activity::kSection || now - reading.began < limit;
  }

 private:
  std::atomic<int64_t> began_ns_{0};
  std::atomic<int64_t> deadline_ns_{INT64_MAX};
};

}  // namespace kintsugi
