// WatchedWorld: ranks that train together, as far as they are on this host: looks at their marks, and once somebody waits for longer than is known
// of such a call, or a rank's collective fails, asks where all stand and says who is to blame (runtime/core/blame.h).
//
// Threads: one.
// Errors: none.
// Invariants: looks, and does nothing else. Nothing is said of a wait that has ended while it was asked about. Ranks of other hosts, and those that
// stand where marks cannot see what they wait for, are never named.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/core/blame.h"
#include "runtime/process/stand.h"
#include "tools/watch/ranks.h"
#include "tools/watch/wait_limits.h"

namespace kintsugi::watch {

class WatchedWorld {
 public:
  explicit WatchedWorld(const WaitBounds& limits) : limits_(limits) {}

  // A second process of one rank is told, and left aside.
  void Add(std::unique_ptr<WatchedRank> rank);
  // Call ten times a second. The lines that are to be told.
  std::vector<std::string> Look(TimePoint now);
  // All processes have ended. `failed`: the program did not end well.
  std::vector<std::string> End(TimePoint now, bool failed);
  bool empty() const { return ranks_.empty(); }

 private:
  // One open collective, by the rank that waits in it.
  struct Wait {
    Rank rank;
    std::string group;
    CollectiveMarks::Mark mark;
    Duration age{};
  };
  struct Told {
    Wait wait;
    core::Blame blame;
  };
  struct Question {
    Wait wait;
    core::BlameQuestion about;
    std::map<Rank, StandReader> readers;
    TimePoint until;
  };

  void Learn(const WatchedRank& rank, const CollectiveMarks::GroupView& view);
  std::optional<Wait> LongestWait(TimePoint now);
  bool IsOver(const Wait& wait) const;
  void Ask(const Wait& wait, TimePoint now);
  void Answer(std::vector<std::string>* lines);
  void LookForBroken(TimePoint now);
  void TellBroken(TimePoint now, std::vector<std::string>* lines);
  core::BlameQuestion AskWhatBroke(TimePoint now) const;
  void Tell(const core::Blame& blame, std::vector<std::string>* lines);
  void TellUnexplained(const Wait& wait, const core::BlameQuestion& about, std::vector<std::string>* lines);
  void TellWhatGoesOn(TimePoint now, std::vector<std::string>* lines);
  std::string Elsewhere() const;

  WaitLimits limits_;
  std::map<Rank, std::unique_ptr<WatchedRank>> ranks_;
  std::vector<std::string> trouble_;
  int world_size_ = 0;
  std::map<std::pair<Rank, std::string>, uint64_t> learnt_;  // the newest number of each group
  std::optional<Question> question_;
  std::optional<Duration> asked_at_;  // of the longest wait, in this standstill
  std::optional<Told> told_;
  std::set<std::string> said_;       // texts, once each in a standstill
  std::optional<TimePoint> looked_;  // last
  uint64_t fresh_since_ns_ = 0;      // before that we did not look: nobody is held to it
  std::optional<TimePoint> broke_;
  uint64_t broke_ns_ = 0;  // the first collective that failed
  bool told_broken_ = false;
};

}  // namespace kintsugi::watch
