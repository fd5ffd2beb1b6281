// What workers do, on this host or another: told to the controller, and kept for the result.
#include <algorithm>

#include "runtime/core/hang_detector.h"
#include "runtime/launcher/leader.h"

namespace kintsugi {
namespace {

// Timings of single steps are kept for pictures; a long run keeps the newest.
constexpr size_t kStepTimingsMax = 1 << 16;

}  // namespace

void Leader::OnStarting(Rank rank, Incarnation incarnation, std::vector<std::string> armed) {
  RankView& view = View(rank);
  view = {};
  view.life = result_.lives.size();
  result_.lives.push_back({rank, incarnation, SteadyClock::SteadyNow(), std::nullopt, ""});
  controller_->SetInjections(rank, std::move(armed));
  if (!ended_) controller_->Feed(core::ProcessFound{rank, incarnation});
}

void Leader::OnPage(Rank rank, Incarnation incarnation, const PageView& page) {
  MarkStep(rank, page);
  View(rank).page = page;
  if (ended_) return;
  controller_->FeedBeat(rank, incarnation, page.beat,
                        core::PlaceOf(page.progress, core::GateWord::Unpack(page.gate_word)));
}

void Leader::OnReport(Rank rank, const StepReport& report) {
  Record(rank, report.step, report.loss, SumOf(report.samples));
}

void Leader::Record(Rank rank, uint64_t step, double loss, const core::SampleSum& samples) {
  controller_->reports().Record(rank, Step(step), loss, samples);
}

void Leader::OnFired(const Injection& injection, TimePoint at) {
  fired_.Add({injection, at});
  for (IncidentResult& incident : result_.incidents) fired_.Attribute(&incident);
}

void Leader::OnHeld(Rank rank, const std::optional<core::HeldState>& held) {
  if (!ended_) controller_->Feed(core::StateHeld{rank, held});
}

void Leader::OnExited(Rank rank, Incarnation incarnation, const std::string& cause, TimePoint at,
                      std::optional<TimePoint> since) {
  if (const auto life = std::exchange(View(rank).life, std::nullopt)) {
    result_.lives[*life].end = at;
    result_.lives[*life].cause = cause;
  }
  if (!ended_) controller_->Feed(core::ProcessExited{rank, incarnation, cause, since});
  StopIfDone();
}

// Its node is away. Whether the process before it lives there nobody knows, so that this is no end of that one.
void Leader::OnNotBegun(Rank rank, Incarnation incarnation) {
  if (!ended_) controller_->Feed(core::ProcessExited{rank, incarnation, WhyNotBack(NodeOf(rank)), std::nullopt, true});
}

void Leader::SetSpares(int node, int waiting) {
  spares_[node] = waiting;
  if (started_ && !ended_ && HasRanks(node))
    controller_->Feed(core::SparesWaiting{Rank(FirstOf(node)), LocalRanks(), waiting});
}

void Leader::MarkStep(Rank rank, const PageView& page) {
  const uint64_t step = UnpackProgress(page.progress).step;
  RankView& view = View(rank);
  if (step == view.step) return;
  times_.OnBegan(Step(step), page.progress_at);
  step_times_.OnBegan(Step(step), page.progress_at);
  if (view.step > 0 && page.progress_at > view.step_began) {
    auto& steps = result_.steps;
    if (steps.size() == kStepTimingsMax) steps.erase(steps.begin(), steps.begin() + kStepTimingsMax / 2);
    steps.push_back({rank, Step(view.step), view.step_began, page.progress_at});
  }
  view.step = step;
  view.step_began = page.progress_at;
}

void Leader::ReportProgress() {
  if (!listener_) return;
  RunProgress progress;
  const core::ControllerCore& core = controller_->core();
  const ReportLedger& reports = controller_->reports();
  progress.step = reports.newest();
  progress.loss = reports.LossOf(progress.step);
  const TimePoint now = SteadyClock::SteadyNow();
  if (progress.step.value() != progress_step_) {
    if (progress_step_ > 0 && progress.step.value() > progress_step_) {
      const double seconds = ToMilliseconds(now - progress_step_at_) / 1000;
      const double samples = static_cast<double>(reports.SamplesOf(progress.step)) *
                             static_cast<double>(progress.step.value() - progress_step_);
      samples_per_second_ = 0.7 * samples_per_second_ + 0.3 * samples / std::max(seconds, 1e-6);
    }
    progress_step_ = progress.step.value();
    progress_step_at_ = now;
  }
  progress.samples_per_second = samples_per_second_;
  progress.world_size = run().policy.world_size;
  progress.ranks_ready = core.ranks_ready();
  progress.incidents = core.incidents();
  progress.phase = core.phase();
  listener_(progress);
}

}  // namespace kintsugi
