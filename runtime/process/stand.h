// StandReader: where a process's main thread stands: its Python frames, the system call it is in, its state by the
// kernel, and whether Python's lock is to be had. Asked through the process's marks (collective_marks.h); a program without
// Python has a system call and a state alone.
//
// What: Begin makes the process write a traceback (by the signal and the thread it named: one that does nothing else, so
// that no call of the program's is interrupted) and asks for
// Python's lock; Read, some hundred milliseconds later, takes what came. Neither waits.
// Threads: one.
// Errors: none: what cannot be known is left empty.
// Invariants: the process is observed only; its calls go on as they did.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/collective_marks.h"
#include "runtime/base/export.h"

namespace kintsugi {

struct ProcessStand {
  std::string at;
  std::string call;
  std::string state;
  bool python_stopped = false;
  std::vector<std::string> stack;  // newest first, "file.py:12 (function)"
  bool in_torch =
      false;  // within torch.distributed, one of torch's operators, or a backward: it may wait there for others
};

class KINTSUGI_EXPORT StandReader {
 public:
  StandReader(pid_t pid, MarkMemory& marks) : pid_(pid), marks_(marks) {}

  void Begin();
  ProcessStand Read();

 private:
  std::string Proc(const std::string& name) const;
  std::string Traceback() const;
  void WriteWithoutLock() const;

  const pid_t pid_;
  MarkMemory& marks_;
  uint32_t asked_ = 0;
  bool is_written_ = false;  // a traceback, by the process that was asked
};

// A traceback as Python's faulthandler writes it: the frames of one thread, newest first, "file.py:12 (function)";
// `at`: the newest that is neither Python's, nor a package's, nor under `own_folder`.
struct PythonFrames {
  std::string at;
  std::vector<std::string> stack;
  bool in_torch = false;
};
KINTSUGI_EXPORT PythonFrames FramesOf(std::string_view traceback, uint64_t thread, std::string_view own_folder);

// "read", "futex"; empty: a number that is not known here, or a thread that runs.
KINTSUGI_EXPORT std::string SystemCallName(std::string_view proc_syscall);

// For the thread that answers for Python: returns with a new question. Without Python's lock.
KINTSUGI_EXPORT uint32_t AwaitQuestion(MarkMemory& marks, uint32_t answered);

}  // namespace kintsugi
