// RunLog: the lines that tell what happens, each with its instant; and where a broken promise is told.
//
// Threads: none.
// Errors: none; without a LogFunction nothing is told, and nothing is made to be told.
// Invariants: a line is printable text, whatever a handler said.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/sim/outcome.h"
#include "runtime/sim/scheduler.h"

namespace kintsugi::sim {

// Takes one line of the event log.
using LogFunction = std::function<void(const std::string&)>;

class RunLog {
 public:
  RunLog(LogFunction log, const Scheduler& scheduler)
      : log_(std::move(log)), scheduler_(scheduler), start_(scheduler.now()) {}
  bool on() const { return log_ != nullptr; }
  void Line(const std::string& text) const;

 private:
  const LogFunction log_;
  const Scheduler& scheduler_;
  const TimePoint start_;
};

// The one thing that a checker may change.
class Violations {
 public:
  explicit Violations(const RunLog& log) : log_(log) {}
  void Break(Promise promise, const std::string& text);
  bool none() const { return all_.empty(); }
  const std::vector<Violation>& all() const { return all_; }

 private:
  const RunLog& log_;
  std::vector<Violation> all_;
};

}  // namespace kintsugi::sim
