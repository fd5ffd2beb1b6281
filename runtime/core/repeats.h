// Repeats: what comes back at one step again and again. It is no fault of the hardware, since repairing it would go on
// for ever: the program or its data is, and the run saves what it holds and ends.
//
// What: for each rank, and for all together, how often in a row something happened at one step: deaths, failures of
// trainers, damages of memory, hangs, collectives that failed with nobody to blame; and how many incidents in a row began
// with one exception, thrown at one place, whatever the rank and the step. Beside steps: how often a rank's
// handler failed in an incident that does not end. Pure; what is counted is the caller's to decide.
// Threads: none.
// Invariants: once there is no hope there is none any more; a count is of the newest step alone.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/core/messages.h"

namespace kintsugi::core {

class Repeats {
 public:
  explicit Repeats(int world_size) : ranks_(static_cast<size_t>(world_size)) {}

  // Why no repair is tried any more; empty: it is.
  const std::string& hopeless() const { return hopeless_; }

  // A process died while it computed this step.
  void Died(Rank rank, Step step, const std::string& cause);
  // A trainer failed; the first report of each counts, at the next CountFailures.
  void Failed(Rank rank, const FaultReport& report) { failures_.emplace(rank, report); }
  // All are parked. `alone`: no process was lost beside them, where an exception may be no more than its echo. `first`: it
  // is the first attempt at the incident.
  void CountFailures(bool alone, bool first);
  // Memory was found damaged. True: new bytes do not mend it, a new process may.
  bool Damaged(Rank rank, Step step);
  // A step does not move, with or without a rank to blame.
  void StandsStill(Step step) { hangs_.Note(step); }
  // ... and nobody is: all stand at one place.
  void StandsStillTogether(const std::string& text);
  // This rank is to be asked to come out of it. True: it was asked often enough. `certain`: nobody else can be the
  // cause.
  bool WasAsked(Rank rank, Step step, bool certain);
  // This handler of the rank's failed, with a cause of its own. A new process is tried once, where there may be one
  // (`replaceable`).
  void HandlerFailed(Rank rank, std::string_view handler, const std::string& text, bool replaceable);
  // All went on: what failed before is forgiven.
  void HandlersHeld();
  // A collective failed after `step`, with nobody to blame. True: it is not tried again.
  bool Retried(Step step, const std::string& cause);

 private:
  // How often in a row at one step.
  class Row {
   public:
    int Note(Step step) {
      times_ = step == step_ ? times_ + 1 : 1;
      step_ = step;
      return times_;
    }
    int times() const { return times_; }
    void Clear() { times_ = 0; }

   private:
    Step step_;
    int times_ = 0;
  };
  struct OfRank {
    Row deaths, failures, damages, hangs;
    std::map<std::string, int, std::less<>> handlers;  // how often each failed
  };
  OfRank& At(Rank rank);
  void CountStreak(const std::map<Rank, FaultReport>& failures);
  void GiveUpHope(std::string why);

  std::vector<OfRank> ranks_;
  Row hangs_, retries_, failures_at_step_;
  std::map<std::string, int, std::less<>> handlers_;  // how often each failed, on any rank
  std::string streak_of_;  // the signature of the newest incidents, one after another; empty: they have none in common
  int streak_ = 0;
  std::map<Rank, FaultReport> failures_;  // that CountFailures has not seen
  std::string hopeless_;
};

}  // namespace kintsugi::core
