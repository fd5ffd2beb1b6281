// HangDetector: whose step has stopped moving while its agent lives.
//
// What: every rank tells its place, as Progress. The time of a step is learnt: the median of the newest steps of all
// ranks. Ranks meet in collectives, so the rank at the earliest place is the one the others wait for: when nobody
// at that place has moved for the limit, these ranks hang. Where all ranks stand at one place, none can be told from
// the others (a deadlock of all, or a trainer that marks no phases). A rank that waits for a neighbour by its own word
// (Activity::kWait) is never who hangs while others do not. Limits: `factor` learnt steps, within [least, most]; for
// the first step after a start the same of the longest first step seen, and `most` before there is one; `activity` for
// a rank that is in another Activity, or while nothing has been learnt at all.
// Units: durations. Time is an argument. When our own tick comes late, the gap is nobody's fault and does not count.
// Threads: none.
// Invariants: memory is one entry for each rank.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "runtime/base/train_phase.h"
#include "runtime/core/gate_word.h"

namespace kintsugi::core {

// Where a rank stands: what it was told of its phases, or what its gate word says, whichever is further. Only the word
// says that a rank is in its gate: one that was marked to come there and has not entered it keeps the others waiting.
Progress PlaceOf(uint64_t progress_word, GateWord word);

struct HangLimits {
  double factor = 5;  // 0: hangs are not looked for
  Duration least{};
  Duration most{};  // also for a hang of all ranks: nobody is to blame, so there is time
  Duration activity{};
};

struct Hang {
  std::vector<Rank> ranks;  // ascending: those that stand at the earliest place
  bool all = false;         // every rank that is in the loop stands there
  bool certain = false;     // all others are in the gate, which nobody leaves before these have entered it
  Progress place;
  Progress furthest;  // where the others wait
  Duration still{};   // for so long nobody at the earliest place has moved
  std::optional<Duration> step_time;
  std::string ToString() const;
};

class HangDetector {
 public:
  HangDetector(HangLimits limits, int world_size) : limits_(limits), ranks_(static_cast<size_t>(world_size)) {}

  // All are in their loop from now on, or again: clocks start anew, what was learnt stays.
  // `step`: they go on from there; none: not known.
  void Start(TimePoint now, std::optional<Step> step = {});
  // Where a rank stands; a place that was told before is no sign of progress.
  void OnPlace(Rank rank, const Progress& place, TimePoint now);
  // The rank waits for others outside of its loop (a save point, the end): it cannot hang, and its step is over.
  void OnIdle(Rank rank, TimePoint now);
  // It is in its loop again, where it was.
  void OnActive(Rank rank, TimePoint now);
  // Call regularly while all ranks are in their loops; nothing while none hangs.
  std::optional<Hang> OnTick(TimePoint now);

  // Median of the newest steps; nothing before kLearntMin of them.
  std::optional<Duration> step_time() const;
  // How long a rank outside of any activity may stand still now, first steps aside.
  Duration Limit() const;

 private:
  static constexpr size_t kSamplesMax = 32;
  static constexpr size_t kLearntMin = 3;
  struct Watched {
    Progress place;
    TimePoint moved;
    std::optional<TimePoint> step_began;  // of a step that was seen to begin
    bool first_step = true;               // since Start
    bool disturbed = false;               // there was an activity in it
    bool idle = false;
  };
  void EndStep(Watched& watched, uint64_t steps, TimePoint now);
  Watched& At(Rank rank);
  Duration LimitOf(const Watched& watched, Duration limit) const;  // with Limit()
  Duration Within(Duration learnt) const;  // `factor` times that, within the bounds

  HangLimits limits_;
  std::vector<Watched> ranks_;
  std::array<Duration, kSamplesMax> samples_{};
  size_t sample_count_ = 0;
  TimePoint started_;
  std::optional<Step> started_from_;
  std::optional<Duration> longest_first_;  // from a start to the end of the first step
  TimePoint last_tick_;
  TimePoint next_look_;
};

}  // namespace kintsugi::core
