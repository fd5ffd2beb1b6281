// Guard: the trainer's thread between passes of its loop: which task comes next, and how a run is gone through, task by
// task or as a whole.
//
// Threads: the trainer's.
// Ownership: of nothing; a task's context is lent until it is finished.
// Errors: kFailedPrecondition: a call out of turn, or something lacks; it says what comes first. Run: kEnded, the run was
// ended before training was complete.
// Invariants: every loop that was entered is left once: a release or an end at a save point is told as kUnwind. When Run has
// returned, or kEnded was given, nothing of the trainer's is called or read any more.
#pragma once

#include <memory>

#include "runtime/agent/activities.h"
#include "runtime/agent/parking.h"
#include "runtime/agent/stop_signal.h"
#include "runtime/agent/tasks.h"

namespace kintsugi {

class Guard {
 public:
  Guard(const Membership& self, Registration& registered, const Gate& gate, Inbox& inbox, ArmedFaults& armed,
        StopWatch& stop, LoopPass& pass, Activities& activities, TrainerPosition& position, StateOffer& offer,
        Relocations& relocations, FaultReports& reports, Tasks& tasks, Parking& parking, std::shared_ptr<LogSink> log)
      : self_(self),
        registered_(registered),
        gate_(gate),
        inbox_(inbox),
        armed_(armed),
        stop_(stop),
        pass_(pass),
        activities_(activities),
        position_(position),
        offer_(offer),
        relocations_(relocations),
        reports_(reports),
        tasks_(tasks),
        parking_(parking),
        log_(std::move(log)) {}

  Status Run(LoopFunction loop, void* context);
  // `pulled`: tasks are, and nothing of the trainer's is called at a save point.
  Status Begin(bool pulled);
  Result<GuardTask> NextTask(TimePoint until);
  Status LeaveLoop(const Status& status, LoopEnd end, const std::string& signature);
  // The trainer's thread stands at `boundary`, and so does its device: until the loop goes on (ok), or is to be left.
  Status AtSavePoint();
  int exit_code() const { return exit_code_; }

 private:
  GuardTask EnterLoop();
  GuardTask Unwind(Step step);
  GuardTask End(const Inbox::RunEnd& end);
  Status RunLoop(LoopFunction loop, void* context);
  Status Leave();
  void CallExit();
  void CloseToTrainer();

  const Membership& self_;
  Registration& registered_;
  const Gate& gate_;
  Inbox& inbox_;
  ArmedFaults& armed_;
  StopWatch& stop_;
  LoopPass& pass_;
  Activities& activities_;
  TrainerPosition& position_;
  StateOffer& offer_;
  Relocations& relocations_;
  FaultReports& reports_;
  Tasks& tasks_;
  Parking& parking_;
  const std::shared_ptr<LogSink> log_;
  StopSignal stop_signal_;
  bool pulled_ = false;
  bool released_at_save_point_ = false;
  int exit_code_ = 1;
};

}  // namespace kintsugi
