// StepReports: a step's loss and samples, on their way to the launcher. They go as the step's gate is entered, so that its launcher
// has them should this process end in its update: a step that was refused before, and is left out then, has consumed nothing.
//
// Threads: the loop's.
// Ownership: the writer of the page's reports.
// Errors: kInvalidArgument: too many samples.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/agent/gate.h"
#include "runtime/agent/rank_page.h"
#include "runtime/base/check.h"
#include "runtime/process/report_ring.h"

namespace kintsugi {

class StepReports {
 public:
  StepReports(RankPage& page, const Gate& gate) : page_(page), gate_(gate) {}

  // The page is open.
  void Open() {
    KINTSUGI_CHECK(!writer_, "reports are opened once");
    writer_.emplace(page_.words().reports);
  }

  // The newest of a step counts.
  Status Note(Step step, double loss, std::span<const uint64_t> samples) {
    KINTSUGI_CHECK(writer_, "a report before the page was opened");
    if (samples.size() > ReportRing::kMaxSamples)
      return {StatusCode::kInvalidArgument, "Report of step " + step.ToString() + ": " +
                                                std::to_string(samples.size()) + " samples; the limit is " +
                                                std::to_string(ReportRing::kMaxSamples)};
    step_ = step;
    loss_ = loss;
    samples_.assign(samples.begin(), samples.end());
    waits_ = true;
    const core::GateWord now = gate_.Word();
    if (now.state != core::GateState::kCommitted || now.step.Next() != step) Send(step);  // its gate was passed before
    return Status::Ok();
  }

  // A step begins: what was told of it before is void.
  void Begin() { waits_ = false; }

  // The gate of `step` is about to be entered.
  void Send(Step step) {
    if (waits_ && step == step_) writer_->Publish(step.value(), loss_, samples_);
    waits_ = false;
  }

 private:
  RankPage& page_;
  const Gate& gate_;
  std::optional<ReportWriter> writer_;
  bool waits_ = false;
  Step step_;
  double loss_ = 0;
  std::vector<uint64_t> samples_;  // its memory stays: a step allocates none
};

}  // namespace kintsugi
