// StepTimes: how many steps a run has begun and how long they took, from one step's first beginning to the next one's.
//
// A step that an incident interrupted is not timed, nor counted a second time when it is done again: what it cost is in
// the run's account (run_times.h).
// Threads: none.
// Errors: none.
// Invariants: its size is fixed.
#pragma once

#include <optional>
#include <utility>

#include "runtime/base/ids.h"
#include "runtime/launcher/run/seconds_histogram.h"

namespace kintsugi {

class StepTimes {
 public:
  // Some rank began this step; others may have before, or stand further back. 0: it has begun none.
  void OnBegan(Step step, TimePoint at) {
    if (step == Step() || (newest_ && step <= newest_->first)) return;
    if (newest_ && step == newest_->first.Next() && at > newest_->second) seconds_.Observe(at - newest_->second);
    newest_ = {step, at};
    if (step <= farthest_) return;
    farthest_ = step;
    ++begun_;
  }
  // The ranks go on after an incident: what was under way is not timed.
  void OnResuming() { newest_.reset(); }

  uint64_t begun() const { return begun_; }  // seen here for the first time
  const SecondsHistogram& seconds() const { return seconds_; }

 private:
  std::optional<std::pair<Step, TimePoint>> newest_;
  Step farthest_;
  uint64_t begun_ = 0;
  SecondsHistogram seconds_;
};

}  // namespace kintsugi
