// RunDigest: a virtual run as one number: every line of its log, and every event that its controllers' cores took with
// every field of every action that they gave. Two builds that give a seed the same number decide alike in it.
//
// Threads: none.
// Ownership: the object outlives the run that it is given to.
#pragma once

#include "runtime/journal/digest.h"
#include "runtime/sim/cluster.h"

namespace kintsugi {

class RunDigest final : public sim::Hook {
 public:
  void OnStart(TimePoint now, const std::vector<core::ControllerAction>& actions) override;
  void OnStep(const core::ControllerEvent& event, TimePoint now,
              const std::vector<core::ControllerAction>& actions) override;
  // One line of the run's log.
  void AddLine(const std::string& line);
  uint64_t value() const;

 private:
  void Mix(uint64_t number);

  uint64_t told_ = 0;  // lines and events
  journal::ActionDigest actions_;
};

// The run of a plan; `log`, which may be null, is given each line too.
struct DigestedRun {
  sim::Outcome outcome;
  uint64_t digest = 0;
};
DigestedRun RunDigested(const sim::Plan& plan, const sim::LogFunction& log);

// Many digests as one, in their order.
uint64_t Chain(uint64_t before, uint64_t next);

}  // namespace kintsugi
