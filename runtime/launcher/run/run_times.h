// RunTimes: where a run's time went. What was useful is what is left of the whole when the start, the time in which
// ranks stood still, and the time that went into steps which had to be done again are taken out.
//
// Invariants: no instant is counted twice; what is kept does not grow with the steps: the more there are, the more
// roughly it is known when one of them began.
// Threads: none.
// Errors: none.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "runtime/core/time_account.h"
#include "runtime/launcher/run/stretches.h"

namespace kintsugi {

class RunTimes {
 public:
  // `before`: with a run that is taken over, what its leaders had counted; then nothing is a start any more.
  explicit RunTimes(TimePoint begin, const TimeAccount& before = {})
      : begin_(begin), before_(before), counted_until_(begin) {}

  // Some rank began this step.
  void OnBegan(Step step, TimePoint at);
  // All ranks go on from `step`; the first time that is the start's end.
  void OnResuming(Step step, TimePoint now);
  // The incident that ended with it, or with the run: the fault's instant, and when all stepped again.
  void OnIncident(TimePoint fault_at, TimePoint resumed_at);

  // Whether all ranks stand at a save point, and whether they do for an operator's pause, as is seen every few
  // milliseconds. One at a time: in a pause a save is a save.
  void OnSaving(bool saving, TimePoint now) { saving_.See(saving, now, counted_until_); }
  void OnPaused(bool paused, TimePoint now) { paused_.See(paused, now, counted_until_); }

  // `standing_since`: the fault of an incident that is not over, whose time passes as all others stand.
  TimeAccount Account(TimePoint end, std::optional<TimePoint> standing_since = std::nullopt) const;

 private:
  static constexpr size_t kMarksMax = 4096;
  static constexpr size_t kExactMax = 1024;
  void Condense();

  const TimePoint begin_;
  const TimeAccount before_;
  std::optional<TimePoint> started_at_;
  Duration down_{}, redone_{};
  Stretches saving_, paused_;
  TimePoint counted_until_;  // what lies before is in the account
  std::optional<TimePoint>
      thrown_away_from_;  // when the ranks began the first step that the present incident throws away
  // Ascending; of the newest steps each, of older ones those `stride_` apart.
  std::vector<std::pair<Step, TimePoint>> marks_;
  size_t exact_ = 0;  // so many at the end are of single steps
  uint64_t stride_ = 1;
};

}  // namespace kintsugi
