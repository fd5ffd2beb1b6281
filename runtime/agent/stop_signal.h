// StopSignal: what asks for the end of a job, left to the launcher while this process trains: SIGTERM, and where the
// program has no handler for them the others that warn (runtime/base/warning_signals.h, and what an operator named).
// SIGXFSZ too: a file that may not grow fails a save, and ends nobody.
//
// Who ends a job signals all of its processes at once (Slurm, a container's end). The launcher answers with a save of the
// whole run, and that takes its ranks. So between Take and PutBack a rank does nothing about these signals; what the program
// does about them before and afterwards is its own affair, as in a process that it forks meanwhile.
// Threads: Take and PutBack on the trainer's; a signal comes on any.
// Ownership: of the process's reaction to each, which is one: a second object that takes them while another has them
// changes nothing.
// Errors: none.
// Invariants: what the program set meanwhile stays.
#pragma once

#include <vector>

namespace kintsugi {

class StopSignal {
 public:
  StopSignal() = default;
  ~StopSignal() { PutBack(); }
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // `further`: what warns beside kWarningSignals.
  void Take(const std::vector<int>& further = {});
  void PutBack();

 private:
  bool taken_ = false;
};

}  // namespace kintsugi
