// WorkerEvents: what is seen of the processes of ranks, told by what watches them: the pool of their host, or the
// connection to it.
//
// Threads: one, that of the launcher.
// Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "runtime/core/held_state.h"
#include "runtime/inject/injection.h"
#include "runtime/process/shared_page.h"

namespace kintsugi {

// What a rank's page says at one instant.
struct PageView {
  uint64_t beat = 0;
  uint64_t gate_word = 0;
  uint64_t progress = 0;
  TimePoint progress_at;  // when the progress word was set
};

// How the process of a rank came to its end.
struct WorkerEnd {
  std::string cause;
  TimePoint at;
  std::optional<TimePoint> since = {};  // an injector's stamp, where there is one
  std::optional<int> code = {};         // with which it left by itself; nothing: something ended it, or nobody knows
  std::vector<std::string> not_struck = {};  // faults that were ordered for this rank and have not struck so far

  bool failed() const { return code != 0; }
};

class WorkerEvents {
 public:
  virtual ~WorkerEvents() = default;
  // A process is about to start, with these injections armed ("id SPEC").
  virtual void OnStarting(Rank rank, Incarnation incarnation, std::vector<std::string> armed) = 0;
  virtual void OnPage(Rank rank, Incarnation incarnation, const PageView& page) = 0;
  virtual void OnReport(Rank rank, const StepReport& report) = 0;
  virtual void OnFired(const Injection& injection, TimePoint at) = 0;
  // What is held of the process that is about to be told as ended.
  virtual void OnHeld(Rank rank, const std::optional<core::HeldState>& held) = 0;
  virtual void OnExited(Rank rank, Incarnation incarnation, const WorkerEnd& end) = 0;
  // So many spares wait from now on.
  virtual void OnSpares(int waiting) = 0;
  // No process of a rank runs and no output is left.
  virtual void OnIdle() = 0;
};

}  // namespace kintsugi
