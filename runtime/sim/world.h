// World: the ground that the simulator's parts share: the plan, virtual time, the one generator, the log, and what
// there is by now: processes, controllers, checkpoints, what launchers hold, what struck whom.
//
// A part reads it and changes it through what is here; parts know only those below them. Checkers are given it const,
// and what a const World leads to is const, too: they see everything and change nothing.
//
// Threads: none.
// Ownership: of all there is; parts refer to it, and it outlives them. What was added stays where it is.
// Invariants: every draw is of `random`, every wait of the scheduler: a run depends on its plan alone.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/sim/hook.h"
#include "runtime/sim/losses.h"
#include "runtime/sim/outcome.h"
#include "runtime/sim/plan.h"
#include "runtime/sim/process.h"
#include "runtime/sim/run_log.h"
#include "runtime/sim/scheduler.h"
#include "runtime/sim/seat.h"
#include "runtime/sim/state.h"

namespace kintsugi::sim {

// The job's name in every virtual frame.
inline const std::string kJob = "sim";

struct Checkpoint {
  std::map<std::pair<int, int>, Tensors> shards;  // by layout and cell
  std::map<Rank, Object> objects;
};

struct Disk {
  std::map<uint64_t, Checkpoint> written, visible;  // by step
};

// What a launcher still has of a rank's process that ended.
struct Left {
  std::optional<core::HeldState> held;
  Memory memory;
  const Cut* cut = nullptr;  // that it was registered in
  bool damaged = false;
};

// A bit of committed state that flipped.
struct FlippedBit {
  uint64_t compared_at = 0;  // the step at which it must be found; 0: none flipped
  bool hidden = false;       // it was lost with its rank, or copied: no comparison can find it any more
};

// What the run has been through, as far as more than one part must know.
struct Course {
  bool ever_running = false;     // its ranks were in their loops
  bool start_disturbed = false;  // something struck before that
  bool stop_asked = false;
  bool checkpoint_known = false;        // the controller was told of one
  bool refused = false;                 // more steps were to be left out than may be
  bool nonsense = false;                // a handler lied: about a checkpoint, for example
  int drains = 0;                       // orders to drain a node that were not refused
  std::map<Rank, int> drained;          // the first ranks of such nodes, and which node had them
  std::map<Rank, int> broken_handlers;  // so many of the rank's handlers broke
  std::optional<TimePoint> host_back;   // when the newest launcher was started anew
  TimePoint ended_at;                   // by the newest controller that ended it
  TimePoint last_progress;              // newest commit or disturbance
  TimePoint last_struck;                // newest planned fault
};

class World {
 public:
  World(Plan plan, LogFunction log, Hook* hook);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Plan plan;
  Hook* const hook;   // may be null
  const size_t size;  // ranks
  const Cuts cuts;
  Reference reference;
  Scheduler scheduler;
  const RunLog log;
  const TimePoint start;
  Random random;
  Violations violations;
  Outcome outcome;
  Course course;
  Losses losses;
  FlippedBit bit;
  Disk disk;
  std::map<Rank, Left> left;                   // by launchers
  std::vector<std::vector<uint64_t>> samples;  // by step and rank: staged before the gate
  ProcessTable processes;
  SeatTable seats;

  // Time.
  TimePoint Now() const { return scheduler.now(); }
  template <typename What>
  void At(TimePoint when, What what) {
    scheduler.At(when, std::move(what));
  }
  template <typename What>
  void In(Duration delay, What what) {
    At(Now() + delay, std::move(what));
  }
  // The process does it if it lives then; a frozen one does it when it thaws.
  template <typename What>
  void For(Process* p, Duration delay, What what) {
    In(delay, [p, what = std::move(what)]() mutable {
      if (!p->alive) return;
      if (p->frozen) return p->deferred.push_back(Task(std::move(what)));
      what();
    });
  }
  // The trainer's thread does it if it is still at what it was at.
  template <typename What>
  void ForTrainer(Process* p, Duration delay, What what) {
    For(p, delay, [p, activity = p->activity, what = std::move(what)]() mutable {
      if (p->activity == activity) what();
    });
  }

  // Draws.
  Duration Between(int64_t low_us, int64_t high_us);
  Duration Share(int low_percent, int high_percent);  // of a step

  void Log(const std::string& text) const { log.Line(text); }
  void Break(Promise promise, const std::string& text) { violations.Break(promise, text); }
  // Something moved, or was disturbed: a wait for progress begins anew.
  void NoteProgress() { course.last_progress = Now(); }

  // Of the controller that is looked at.
  Seat& seat() { return seats.current(); }
  const Seat& seat() const { return seats.current(); }
  ControllerCore& core() { return seat().core(); }
  const ControllerCore& core() const { return seat().core(); }

  // Whether all that hold one shard, as it was ever cut, were lost.
  bool ShardAtRisk() const;

  // Where nodes may take each other's ranks over.
  int Hosts() const { return plan.nodes + plan.spare_nodes; }
  int LocalRanks() const { return plan.policy.world_size / plan.nodes; }
  // By the placement of the controller that is looked at.
  int SeatedNodeOf(Rank rank) const { return seat().placement.NodeOf(rank.value() / LocalRanks()); }
};

}  // namespace kintsugi::sim
