// HangDetector: whose step has stopped moving while its agent lives.
//
// What: every rank tells its place, as Progress. The time of a step is learnt: the median of the newest steps of all
// ranks. Ranks meet in collectives, so the rank at the earliest place is the one the others wait for: when nobody
// at that place has moved for the limit, these ranks hang. Where all ranks stand at one place, none can be told from
// the others (a deadlock of all, or a trainer that marks no phases). A rank that waits for a neighbour by its own word
// (Activity::kWait) is never who hangs while others do not; where it waits at an earlier step than they stand at, they wait
// for each other, and nobody can be told either. Limits: `factor` learnt steps, within [least, most]; for the first step
// after a start the same of the longest first step seen, and `most` before there is one; `activity` for a rank that is in
// another Activity, behind the commit of its step, or while nothing has been learnt at all; none in Activity::kSection, and
// while anybody is in one nobody else stands still either. At a step at which somebody stood still each limit is eightfold
// the next time, up to `most`: code that is slow gets through, code that never ends is found again.
// Who is past them in the step, at its end as a rule, with fewer collectives than those that stand still in it, and than it usually has, is the one
// that they wait for.
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

// Whether it takes as long there as steps are known to take: in no activity, nor behind a step's commit.
bool IsInStep(const Progress& place);

struct HangLimits {
  double factor = 5;  // 0: hangs are not looked for
  Duration least{};
  Duration most{};  // also for a hang of all ranks: nobody is to blame, so there is time
  Duration activity{};
  Duration first{};  // for the first step of all, of which nothing is known; 0: `most`
};

struct Hang {
  std::vector<Rank> ranks;  // ascending: those that stand at the earliest place
  bool all = false;         // every rank that is in the loop stands there
  bool certain = false;     // all others are in the gate, which nobody leaves before these have entered it
  Progress place;
  Progress furthest;  // where the others wait
  Duration still{};   // for so long nobody at the earliest place has moved
  std::optional<Duration> step_time;
  std::string why;  // what the ranks say of it themselves (blame.h); empty: nothing
  struct Place {
    Rank rank;
    Progress at;
  };
  std::vector<Place> waiting;  // with `all`: ranks that wait, at other places, for those that stand there
  std::vector<Place> short_of;  // ranks that are past these with fewer collectives, which these wait for
  std::string ToString() const;
  // REQUIRES: somebody is short of a collective.
  std::string ShortOfText() const;
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
  // ... at this step.
  Duration LimitAt(uint64_t step) const { return Grown(step, Limit()); }
  // ... this rank, while it stands in its step; nothing while nothing is learnt, nor where hangs are not looked for.
  std::optional<Duration> StepLimit(Rank rank) const;
  // A rank stood still for too long at that step: it has more time the next time there.
  void Grow(uint64_t step);
  // Whether it is in what takes longer than a step, and may be; or has just left that.
  bool IsBusy(Rank rank, TimePoint since, TimePoint now) const;

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
    uint32_t collectives_most = 0;        // of a step, as far as was seen
  };
  void EndStep(Watched& watched, uint64_t steps, TimePoint now);
  Watched& At(Rank rank);
  Duration LimitOf(const Watched& watched, Duration limit) const;  // with Limit()
  Duration StepLimitOf(const Watched& watched, Duration limit) const;
  Duration Grown(uint64_t step, Duration limit) const;
  bool AnySection() const;
  void FindWaiting(Hang* hang) const;
  void FindShortOf(Hang* hang) const;
  Duration Within(Duration learnt) const;  // `factor` times that, within the bounds

  HangLimits limits_;
  std::vector<Watched> ranks_;
  std::array<Duration, kSamplesMax> samples_{};
  size_t sample_count_ = 0;
  TimePoint started_;
  std::optional<Step> started_from_;
  std::optional<Duration> longest_first_;  // from a start to the end of the first step
  uint64_t grown_step_ = 0;  // where somebody stood still last, and how often
  int grown_ = 0;
  TimePoint last_tick_;
  TimePoint next_look_;
};

}  // namespace kintsugi::core
