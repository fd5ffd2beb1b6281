// ProgressMeter: what a live display wants to know of a run, and how many samples a second go through it.
//
// Threads: one, that of the leader; the listener is called on it.
// Ownership: the controller outlives it.
// Errors: none.
// Invariants: nothing is worked out while nobody listens.
#pragma once

#include <functional>
#include <optional>

#include "runtime/controller/controller.h"

namespace kintsugi {

// What a live display wants to know, a few times a second.
struct RunProgress {
  Step step;
  std::optional<double> loss;
  double samples_per_second = 0;
  int ranks_ready = 0;
  int world_size = 0;
  uint64_t incidents = 0;
  core::Phase phase = core::Phase::kAdmit;
};

// The newest step that any rank works at, whether or not the trainer reports anything of its steps.
Step NewestStep(Controller& controller);

// How many samples a second, smoothed, from the steps that are seen to pass. Pure.
class SampleRate {
 public:
  // `step`: the newest; `samples`: of that step.
  double See(uint64_t step, uint64_t samples, TimePoint now);

 private:
  uint64_t step_ = 0;
  TimePoint step_at_;
  double per_second_ = 0;
};

class ProgressMeter {
 public:
  explicit ProgressMeter(Controller& controller) : controller_(controller) {}

  void Listen(std::function<void(const RunProgress&)> listener) { listener_ = std::move(listener); }
  void Tell(TimePoint now);

 private:
  Controller& controller_;
  std::function<void(const RunProgress&)> listener_;  // empty: nobody
  SampleRate rate_;
};

}  // namespace kintsugi
