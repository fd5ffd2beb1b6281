// What went into the controller's core in a virtual run, as a recording of it would hold: instants in whole
// microseconds.
#pragma once

#include <vector>

#include "runtime/base/check.h"
#include "runtime/journal/input.h"
#include "runtime/sim/cluster.h"

namespace kintsugi {

class InputCollector final : public sim::Hook {
 public:
  void OnStart(TimePoint now, const std::vector<core::ControllerAction>&) override {
    inputs.push_back({Whole(now), journal::Start{}});
  }
  void OnStep(const core::ControllerEvent& event, TimePoint now, const std::vector<core::ControllerAction>&) override {
    inputs.push_back({Whole(now), event});
  }

  std::vector<journal::Input> inputs;

 private:
  static TimePoint Whole(TimePoint t) {
    return TimePoint(std::chrono::floor<std::chrono::microseconds>(t.since_epoch()));
  }
};

// REQUIRES: the run keeps every promise.
inline std::vector<journal::Input> InputsOf(const sim::Plan& plan) {
  InputCollector collector;
  const sim::Outcome outcome = sim::Cluster(plan, nullptr, &collector).Run();
  KINTSUGI_CHECK(outcome.violations.empty(), "the virtual run breaks " + outcome.violations.front().ToString());
  return std::move(collector.inputs);
}

}  // namespace kintsugi
