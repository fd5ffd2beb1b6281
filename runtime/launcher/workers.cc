// Worker processes: start, output, exit, and the pages that they share with the launcher.
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <csignal>

#include "runtime/launcher/impl.h"

namespace kintsugi {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(10);
constexpr Duration kProgressInterval = std::chrono::milliseconds(100);
// Timings of single steps are kept for pictures; a long run keeps the newest.
constexpr size_t kStepTimingsMax = 200'000;

}  // namespace

void Launcher::Impl::Spawn(Rank rank, Incarnation incarnation) {
  Slot& slot = slots_[static_cast<size_t>(rank.value())];
  if (slot.child && slot.child->running()) {
    // A victim is reaped before its successor starts.
    slot.next = incarnation;
    (void)slot.child->KillGroup(SIGKILL);
    return;
  }
  StartProcess(rank, incarnation);
}

void Launcher::Impl::Kill(Rank rank, Incarnation incarnation, const std::string& reason) {
  Slot& slot = slots_[static_cast<size_t>(rank.value())];
  if (slot.incarnation != incarnation || !slot.child) return;
  slot.kill_reason = reason;
  if (slot.child->running()) (void)slot.child->KillGroup(SIGKILL);
}

Result<ProcessSpec> Launcher::Impl::SpecFor(Rank rank, Incarnation incarnation, int page_fd) const {
  ProcessSpec spec;
  spec.program = options_.program;
  spec.args = options_.args;
  spec.environment = options_.environment;
  spec.environment["RANK"] = rank.ToString();
  spec.environment["LOCAL_RANK"] = rank.ToString();
  spec.environment["WORLD_SIZE"] = std::to_string(options_.policy.world_size);
  spec.environment["LOCAL_WORLD_SIZE"] = std::to_string(options_.policy.world_size);
  spec.environment["MASTER_ADDR"] = "127.0.0.1";
  spec.environment["MASTER_PORT"] = std::to_string(master_port_);
  spec.environment["KINTSUGI_CONTROLLER"] = options_.bind_address + ":" + std::to_string(controller_->port());
  spec.environment["KINTSUGI_JOB"] = options_.job;
  spec.environment["KINTSUGI_INCARNATION"] = incarnation.ToString();
  spec.passed_fds = {{secret_fd_, "KINTSUGI_SECRET_FD"}, {page_fd, "KINTSUGI_PAGE_FD"}};
  return spec;
}

void Launcher::Impl::StartProcess(Rank rank, Incarnation incarnation) {
  Slot& slot = slots_[static_cast<size_t>(rank.value())];
  const auto failed = [&](const Status& why) {
    const std::string text = "could not be started: " + why.message();
    log_->Write(LogLevel::kError, LogLine("spawn_failed", {{"rank", rank.ToString()}, {"why", why.message()}}));
    slot.incarnation = incarnation;
    controller_->Feed(core::ProcessExited{rank, incarnation, text, std::nullopt});
  };
  if (ended_) return;
  slot.child.reset();
  slot.reports.reset();
  Result<SharedPage> page = SharedPage::Create();
  if (!page.ok()) return failed(page.status());
  slot.page.emplace(std::move(page).value());
  slot.reports.emplace(slot.page->words().reports);
  slot.incarnation = incarnation;
  slot.step = 0;
  slot.kill_reason.clear();

  std::vector<std::string> armed;
  for (const LedgerEntry& entry : ledger_.ForRank(rank)) {
    armed.push_back(entry.id.ToString() + " " + ToString(entry.injection));
    (void)ledger_.MarkHanded(entry.id);
  }
  controller_->SetInjections(rank, std::move(armed));

  Result<ProcessSpec> spec = SpecFor(rank, incarnation, slot.page->fd());
  if (!spec.ok()) return failed(spec.status());
  ChildProcess::Callbacks callbacks;
  callbacks.on_exit = [this, rank, incarnation](const ExitCause& cause) { OnExit(rank, incarnation, cause); };
  callbacks.on_line = [this, rank](OutputStream stream, std::string_view line) { OnLine(rank, stream, line); };
  callbacks.on_output_end = [this] { StopIfDone(); };
  Result<std::unique_ptr<ChildProcess>> child =
      ChildProcess::Spawn(io_, *spec, std::move(callbacks), {guardian_.get(), &oom_});
  if (!child.ok()) return failed(child.status());
  slot.child = std::move(child).value();
  slot.life = result_.lives.size();
  result_.lives.push_back({rank, incarnation, SteadyClock::SteadyNow(), std::nullopt, ""});
  log_->Write(LogLevel::kInfo, LogLine("spawned", {{"rank", rank.ToString()},
                                                   {"incarnation", incarnation.ToString()},
                                                   {"pid", std::to_string(slot.child->pid())}}));
}

void Launcher::Impl::OnExit(Rank rank, Incarnation incarnation, const ExitCause& cause) {
  Slot& slot = slots_[static_cast<size_t>(rank.value())];
  // What it left in its page counts: it may have committed, and told so, a microsecond before it died.
  ReadPage(rank, slot);
  std::string text = cause.text;
  if (!slot.kill_reason.empty()) text += " (" + slot.kill_reason + ")";
  if (!cause.last_stderr_lines.empty()) text += "; last line of its error output: " + cause.last_stderr_lines.back();
  result_.lives[slot.life].end = cause.time;
  result_.lives[slot.life].cause = text;
  log_->Write(ended_ ? LogLevel::kInfo : LogLevel::kWarning,
              LogLine("exited", {{"rank", rank.ToString()}, {"incarnation", incarnation.ToString()}, {"cause", text}}));
  if (!ended_) {
    std::optional<TimePoint> since;
    if (const uint64_t stamp = slot.page->words().fault_ns.load())
      since = TimePoint(Duration(static_cast<int64_t>(stamp)));
    FeedBeat(rank, slot);  // where it stood
    controller_->Feed(core::ProcessExited{rank, incarnation, text, since});
  }
  if (const auto next = std::exchange(slot.next, std::nullopt); next && !ended_)
    // Not from inside the callback of the child that is being replaced.
    boost::asio::post(io_, [this, rank, next] { StartProcess(rank, *next); });
  StopIfDone();
}

void Launcher::Impl::OnLine(Rank rank, OutputStream stream, std::string_view line) {
  if (options_.show_output) output_->WriteLine(rank, stream, line);
}

void Launcher::Impl::Poll() {
  for (size_t r = 0; r < slots_.size(); ++r) {
    Slot& slot = slots_[r];
    if (!slot.child || !slot.child->running()) continue;
    const Rank rank(static_cast<int32_t>(r));
    ReadPage(rank, slot);
    FeedBeat(rank, slot);
  }
  const TimePoint now = SteadyClock::SteadyNow();
  if (now - last_progress_ >= kProgressInterval) {
    last_progress_ = now;
    ReportProgress();
    oom_.Settle();
  }
  poll_.expires_after(kPollInterval);
  poll_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Poll();
  });
}

void Launcher::Impl::FeedBeat(Rank rank, const Slot& slot) {
  if (!slot.page) return;
  const SharedWords& words = slot.page->words();
  controller_->FeedBeat(rank, slot.incarnation, words.beat.load(),
                        core::PlaceOf(words.progress.load(), core::GateWord::Unpack(words.gate_word.load())));
}

void Launcher::Impl::ReadPage(Rank rank, Slot& slot) {
  if (!slot.page) return;
  SharedWords& words = slot.page->words();
  MarkStep(rank, slot, UnpackProgress(words.progress.load()).step);
  slot.reports->Read([&](const StepReport& report) {
    controller_->reports().Record(rank, Step(report.step), report.loss, report.samples);
  });
  for (const LedgerEntry& entry : ledger_.MarkFiredMask(rank, words.fired_injections.load()))
    result_.fired.push_back({entry.injection, TimePoint(Duration(static_cast<int64_t>(words.fault_ns.load())))});
}

void Launcher::Impl::MarkStep(Rank rank, Slot& slot, uint64_t step) {
  if (step == slot.step) return;
  const TimePoint began(Duration(static_cast<int64_t>(slot.page->words().progress_ns.load())));
  if (slot.step > 0 && result_.steps.size() < kStepTimingsMax && began > slot.step_began)
    result_.steps.push_back({rank, Step(slot.step), slot.step_began, began});
  slot.step = step;
  slot.step_began = began;
}

void Launcher::Impl::ReportProgress() {
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
  progress.world_size = options_.policy.world_size;
  for (const auto& member : core.members())
    progress.ranks_ready += member.life == core::ControllerCore::Life::kReady;
  progress.incidents = core.incidents();
  progress.phase = core.phase();
  listener_(progress);
}

void Launcher::Impl::StopIfDone() {
  if (!ended_) return;
  const bool alive =
      std::any_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.child && s.child->running(); });
  if (alive) return;
  // One turn more, so that lines still in the pipes come out.
  leave_.expires_after(std::chrono::milliseconds(20));
  leave_.async_wait([this](const boost::system::error_code& error) {
    if (!error) io_.stop();
  });
}

}  // namespace kintsugi
