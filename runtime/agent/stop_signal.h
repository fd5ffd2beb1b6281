// StopSignal: SIGTERM, left to the launcher while this process trains.
//
// Who ends a job signals all of its processes at once (Slurm, a container's end). The launcher answers with a save of the
// whole run, and that takes its ranks. So between Take and PutBack a rank does nothing about the signal; what the program
// does about it before and afterwards is its own affair, as in a process that it forks meanwhile.
// Threads: Take and PutBack on the trainer's; a signal comes on any.
// Ownership: of the process's reaction to SIGTERM, which is one: a second object that takes it while another has it
// changes nothing.
// Errors: none.
// Invariants: what the program set meanwhile stays.
#pragma once

#include <csignal>

namespace kintsugi {

class StopSignal {
 public:
  StopSignal() = default;
  ~StopSignal() { PutBack(); }
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  void Take();
  void PutBack();

 private:
  bool taken_ = false;
};

}  // namespace kintsugi
