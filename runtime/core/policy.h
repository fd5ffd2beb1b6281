// Policy: everything a controller is told before a run. Constant afterwards.
//
// Units: std::chrono durations. All limits but the silence derive from one number, the step timeout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/core/consent.h"
#include "runtime/core/hang_detector.h"
#include "runtime/core/phase_times.h"

namespace kintsugi::core {

struct Checkpoint {
  Step step;
  std::string directory;
  bool operator==(const Checkpoint&) const = default;
};

struct Policy {
  int world_size = 1;                                 // seats: the most ranks that ever take part
  int node_ranks = 0;                                 // on each of several hosts; 0: one host, or nobody says
  int max_respawns = 10;                              // per rank
  Duration silence = std::chrono::seconds(1);         // no sign of life for this long is a fault
  Duration step_timeout = std::chrono::seconds(60);   // the longest a healthy step, or a handler on small state, takes
  Duration join_timeout = std::chrono::seconds(120);  // program start -> Agent::Run
  Duration grace = std::chrono::seconds(30);          // preemption: save and leave within this time
  int repairs_per_rank = 2;                           // repaired copies of a rank that differ before it is respawned
  uint64_t save_every = 0;                            // steps; 0: never
  uint64_t verify_every = 0;                          // steps between comparisons of replicas; 0: in recovery only
  uint64_t snapshot_every = 0;                        // steps between in-memory snapshots; 0: none
  bool snapshot_auto = false;                         // ... chosen from their cost (snapshot_table.h)
  std::string save_directory;                         // empty: no dump is possible
  std::string resume_directory;                       // the checkpoint a run starts from; empty: fresh
  Step resume_step;
  bool begins_again = false;       // the command that started the run, given again, goes on where it can
  bool resume_by_trainer = false;  // ... in a form of the trainer's own: its repair handler loads it and says the step
  double hang_factor = 5;          // so many learnt step times without progress are a hang; 0: never
  Duration hang_least = std::chrono::seconds(5);  // and at least so long
  bool can_spawn = true;                          // a launcher starts replacements; else they come by themselves
  bool adopts = false;                            // launchers hold the memory of processes that are gone
  bool shrinks = true;  // where the trainer offers smaller worlds, the run goes on in one without ranks lost for good
  // Several hosts: a new generation needs the consent of a majority (consent.h). Without it ranks stay parked for so
  // long, then save what they have and leave. One that leads a part has waited before it led.
  bool needs_consent = false;
  Duration consent_wait = std::chrono::seconds(60);
  TieRule tie_rule = TieRule::kLowestRank;  // what decides an even split, to begin with
  bool takes_over = false;                  // a run that another controller began: its ranks say where it stands
  bool began = false;                       // with takes_over: it is known that ranks were in their loops
  uint64_t incidents_before = 0;            // with takes_over: how many the run has had
  bool pause_asked = false;                 // with takes_over: by an operator, before
  int ranks_wanted = 0;                     // with takes_over: by an operator, before; 0: nobody said
  bool part = false;                        // with takes_over: no majority elected it
  std::vector<Checkpoint> checkpoints;      // with takes_over: complete ones, the newest last

  // Derived limits.
  Duration ConfirmWindow() const { return silence + silence / 4; }
  Duration LockLimit() const { return silence + step_timeout / 4; }
  // The trainer's stop handler, and then the way out of the step it has freed.
  Duration StopHandlerLimit() const { return std::min<Duration>(step_timeout, std::chrono::seconds(10)); }
  Duration StopLimit() const { return step_timeout; }
  // Twice the silence limit: a process that sleeps must be found by that first.
  HangLimits Hangs() const {
    return {hang_factor, std::min(std::max(hang_least, 2 * silence), step_timeout), step_timeout, 10 * step_timeout};
  }
  // After which time it is asked why (blame.h); nothing but an answer comes of it, so it may be soon.
  HangLimits Looks() const {
    const HangLimits hangs = Hangs();
    const Duration unknown = std::min<Duration>(std::chrono::seconds(30), step_timeout);
    return {hang_factor > 0 ? hang_factor : 5, std::min<Duration>(std::chrono::seconds(1), hangs.least), step_timeout,
            unknown, unknown};
  }
  // Handlers take this long at most; how long they usually take is learnt.
  Duration HandlerLimit() const { return step_timeout; }
  PhaseTimes Phases() const {
    return {2 * hang_factor, std::max<Duration>(2 * Hangs().least, std::chrono::seconds(10))};
  }
  Duration RepairLimit() const { return 10 * step_timeout; }
  // ... of state of so many bytes, in all: a handler that hangs is not waited for as one that moves the largest. 0:
  // nobody knows how many.
  Duration RepairLimit(uint64_t bytes) const {
    return bytes == 0 ? RepairLimit() : std::min(RepairLimit(), HandlerLimit() + TimeToMove(bytes));
  }
  // By the slowest disk or road that anybody trains with, shared by all.
  static Duration TimeToMove(uint64_t bytes) {
    constexpr uint64_t kBytesPerSecond = 10'000'000;
    return std::chrono::seconds(std::min<uint64_t>(bytes / kBytesPerSecond, 1'000'000));
  }
  // No single wait takes as long: an incident that does goes from attempt to attempt.
  Duration IncidentLimit() const { return RepairLimit() + 2 * (join_timeout + consent_wait); }
  // A handler that ran into its own limit has this long to say so before it counts as one that ignores it.
  Duration AnswerSlack() const { return silence; }

  // Relations between fields; the message names the field, its value and the bound.
  Status Validate() const;
};

}  // namespace kintsugi::core
