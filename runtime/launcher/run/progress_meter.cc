#include "runtime/launcher/run/progress_meter.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi {

Step NewestStep(Controller& controller) {
  Step newest = controller.reports().newest();
  for (const core::Member& member : controller.core().members()) newest = std::max(newest, member.works_at());
  return newest;
}

double SampleRate::See(uint64_t step, uint64_t samples, TimePoint now) {
  if (step == step_) return per_second_;
  if (step_ > 0 && step > step_) {
    const double seconds = ToMilliseconds(now - step_at_) / 1000;
    const double passed = static_cast<double>(samples) * static_cast<double>(step - step_);
    per_second_ = 0.7 * per_second_ + 0.3 * passed / std::max(seconds, 1e-6);
  }
  step_ = step;
  step_at_ = now;
  KINTSUGI_CHECK(per_second_ >= 0, "fewer than no samples a second");
  return per_second_;
}

void ProgressMeter::Tell(TimePoint now) {
  if (!listener_) return;
  const core::ControllerCore& core = controller_.core();
  const ReportLedger& reports = controller_.reports();
  RunProgress progress;
  const Step reported = reports.newest();
  progress.step = NewestStep(controller_);
  progress.loss = reports.LossOf(reported);
  progress.samples_per_second = rate_.See(reported.value(), reports.SamplesOf(reported), now);
  progress.world_size = static_cast<int>(core.crew().size());
  progress.ranks_ready = core.ranks_ready();
  progress.incidents = core.incidents();
  progress.phase = core.phase();
  listener_(progress);
}

}  // namespace kintsugi
