// Activities: what the trainer has said that it is busy with, for the launcher that reads its page.
//
// Threads: the trainer's.
// Ownership: its own; the page outlives it.
// Errors: kInvalidArgument, kFailedPrecondition: Begin and End do not match.
#pragma once

#include <vector>

#include "runtime/agent/activity_clock.h"
#include "runtime/agent/rank_page.h"
#include "runtime/base/train_phase.h"

namespace kintsugi {

class Activities {
 public:
  Activities(RankPage& page, ActivityClock& clock) : page_(page), clock_(clock) {}

  // `limit`: of this one alone.
  Status Begin(Activity activity, Duration limit = Duration::max());
  Status End();
  // The loop was left, by an exception or a status, with all that was open.
  void Clear();
  Activity now() const { return open_.empty() ? Activity::kNone : open_.back().activity; }

 private:
  struct Open {
    Activity activity;
    TimePoint began;
    TimePoint deadline;  // of this one and those around it
  };
  void Tell();

  RankPage& page_;
  ActivityClock& clock_;
  std::vector<Open> open_;  // the innermost last
};

}  // namespace kintsugi
