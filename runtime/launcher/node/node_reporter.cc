#include "runtime/launcher/node/node_reporter.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/host_name.h"
#include "runtime/controller/report_ledger.h"
#include "runtime/wire/codec.h"

namespace kintsugi {
namespace {

constexpr size_t kRetoldAtOnce = 200;

}  // namespace

wire::NodeHello NodeReporter::Hello(uint16_t port) const {
  wire::NodeHello hello{.node_rank = state_.index(),
                        .nodes = state_.run().nodes,
                        .local_ranks = state_.self.local_ranks(),
                        .address = state_.run().node_address,
                        .lives = {},
                        .port = port,
                        .witness = !state_.run().witness.empty(),
                        .controllers = state_.run().controllers,
                        .master_port = state_.master_port,
                        .launcher = state_.launcher_id,
                        .held = {},
                        .host = HostName(),
                        .version = state_.run().version,
                        .alike = state_.run().alike,
                        .own = state_.run().own,
                        .newcomer = state_.newcomer.is_one()};
  for (const WorkerPool::Life& life : pool_.Lives()) hello.lives.push_back({life.rank, life.incarnation, life.armed});
  for (const auto& [rank, held] : pool_.Held()) hello.held.push_back(HeldOf(rank, held));
  return hello;
}

void NodeReporter::SetBeat(Duration beat) { beat_ = beat; }

void NodeReporter::Poll(TimePoint now) {
  if (now - told_pages_ >= beat_) {
    told_pages_ = now;
    TellPages(true);
  }
  RetellReports(kRetoldAtOnce);
}

void NodeReporter::TellPages(bool always) {
  wire::Pages told;
  for (const auto& [rank, page] : std::exchange(pages_, {})) told.pages.push_back(page);
  if (always || !told.pages.empty()) to_leader_.Tell(told);
}

void NodeReporter::RetellReports(size_t at_most) {
  if (to_leader_.connected())
    retained_.Retell(at_most, [this](const wire::WorkerReport& report) { return to_leader_.Tell(report); });
}

void NodeReporter::NoteRegistered(std::string_view payload) {
  const Result<wire::AgentFrame> frame = wire::DecodeFromAgent(state_.run().job, payload);
  const auto* message = frame.ok() ? std::get_if<core::AgentMessage>(&frame->message) : nullptr;
  if (message && std::holds_alternative<core::Ready>(*message)) registered_[frame->header.rank] = payload;
}

wire::NodeHeld NodeReporter::HeldOf(Rank rank, const std::optional<core::HeldState>& held) const {
  const auto registered = registered_.find(rank);
  return {rank, held, held && registered != registered_.end() ? registered->second : std::string()};
}

void NodeReporter::OnStarting(Rank rank, Incarnation incarnation, std::vector<std::string> armed) {
  pages_.erase(rank);
  ends_here_.erase(rank);
  state_.fresh.OnStarted(rank, incarnation, state_.pulse.generation);
  to_leader_.Tell(wire::WorkerStarting{{rank, incarnation, std::move(armed)}});
}

void NodeReporter::OnPage(Rank rank, Incarnation incarnation, const PageView& page) {
  const Duration age = std::max(SteadyClock::SteadyNow() - page.progress_at, Duration());
  pages_[rank] = {rank, incarnation, page.beat, page.gate_word, page.progress, age};
}

void NodeReporter::OnReport(Rank rank, const StepReport& report) {
  wire::WorkerReport told{rank, report.step, report.loss, SumOf(report.samples)};
  to_leader_.Tell(told);
  retained_.Keep(std::move(told));
}

void NodeReporter::OnFired(const Injection& injection, TimePoint at) {
  to_leader_.Tell(wire::InjectionFired{ToString(injection), SteadyClock::SteadyNow() - at});
}

void NodeReporter::OnExited(Rank rank, Incarnation incarnation, const WorkerEnd& end) {
  TellPages();  // where it stood
  KINTSUGI_CHECK(pages_.empty(), "a page is told after its process's end");
  ends_here_[rank] = end;
  TellEnd(rank, incarnation, end);
  ends_.OnLeft();
}

void NodeReporter::TellEnd(Rank rank, Incarnation incarnation, const WorkerEnd& end) {
  const TimePoint now = SteadyClock::SteadyNow();
  wire::WorkerExited exited{.rank = rank,
                            .incarnation = incarnation,
                            .cause = end.cause,
                            .age = std::max(now - end.at, Duration()),
                            .left = end.code.has_value(),
                            .code = end.code.value_or(0),
                            .not_struck = end.not_struck};
  if (end.since) exited.since_age = std::max(now - *end.since, Duration());
  to_leader_.Tell(exited);
}

// Of a rank that this launcher never started a process for, another one did, which is gone.
void NodeReporter::TellEnds() {
  std::map<Rank, WorkerEnd> ends = ends_here_;
  const int local_ranks = state_.self.local_ranks();
  if (const std::optional<int> block = block_.number())
    for (int r = *block * local_ranks; r < (*block + 1) * local_ranks; ++r)
      ends.try_emplace(Rank(r),
                       WorkerEnd{.cause = "ended with the launcher before this one", .at = SteadyClock::SteadyNow()});
  for (const WorkerPool::Life& life : pool_.Lives()) ends.erase(life.rank);
  for (const auto& [rank, end] : ends) TellEnd(rank, Incarnation(), end);
}

}  // namespace kintsugi
