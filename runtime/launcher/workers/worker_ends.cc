#include "runtime/launcher/workers/worker_ends.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/launcher/workers/stack_log.h"

namespace kintsugi {
namespace {

// Agents beat every 50 ms.
constexpr Duration kAliveFor = std::chrono::milliseconds(250);
constexpr Duration kStacksLimit = std::chrono::seconds(1);
// What a process left behind is waited for, killed as it is, for so long: it may hang in the kernel.
constexpr Duration kClearAwayLimit = std::chrono::seconds(2);
constexpr Duration kClearAwayEvery = std::chrono::milliseconds(2);

}  // namespace

WorkerEnds::WorkerEnds(boost::asio::io_context& io, const HostProcesses& processes, WorkerEvents& events,
                       WorkerPages& pages, WorkerStarter& starter, std::shared_ptr<LogSink> log)
    : io_(io),
      options_(processes.options),
      events_(events),
      table_(processes.table),
      output_(processes.output),
      guard_(processes.guard),
      pages_(pages),
      starter_(starter),
      log_(std::move(log)) {}

// ---- killed ------------------------------------------------------------------------------------------------------

void WorkerEnds::Kill(const RankIncarnation& who, const std::string& reason) {
  Worker* const worker = table_.Find(who);
  if (!worker) return;
  worker->kill_reason = reason;
  if (!worker->running() || worker->stacks) return;
  const TimePoint beat(Duration(static_cast<int64_t>(worker->words().beat_ns.load())));
  const bool lives = SteadyClock::SteadyNow() - beat < kAliveFor;
  if (lives && !table_.leaving()) DumpStacks(*worker, who);
  if (!worker->stacks) (void)worker->child->KillGroup(SIGKILL);
}

void WorkerEnds::KillAtOnce(Rank rank, const std::string& why) {
  Worker* const worker = table_.Find(rank);
  if (worker) worker->state.DistrustDevice();
  if (!worker || !worker->running() || table_.leaving()) return;
  worker->kill_reason = why;
  if (!worker->stacks) (void)worker->child->KillGroup(SIGKILL);
}

void WorkerEnds::Replace(Worker& worker, Incarnation next) {
  KINTSUGI_CHECK(worker.running(), "life " + next.ToString() + " would wait for the end of one that has ended");
  worker.next = next;
  if (!worker.stacks) (void)worker.child->KillGroup(SIGKILL);
}

void WorkerEnds::KillAll() {
  for (auto& [rank, worker] : table_)
    if (worker.running()) (void)worker.child->KillGroup(SIGKILL);
}

void WorkerEnds::DumpStacks(Worker& worker, const RankIncarnation& who) {
  KINTSUGI_CHECK(worker.child && !worker.stacks, "stacks of no process, or for the second time");
  const auto kept = std::make_shared<StackLog>(who, options_.stacks_directory, log_);
  auto dump = StackDump::Start(
      io_, worker.child->pid(), kStacksLimit, [kept](std::string_view line) { kept->Add(line); },
      // An entry stays where it is, and its child until it is reaped.
      [&worker, kept] {
        kept->Close();
        (void)worker.child->KillGroup(SIGKILL);
      });
  if (dump.ok()) {
    worker.stacks = std::move(dump).value();
    return;
  }
  log_->Write(LogLevel::kInfo, LogLine("no_stack", {{"rank", who.rank.ToString()}, {"why", dump.status().message()}}));
}

// ---- ended -------------------------------------------------------------------------------------------------------

void WorkerEnds::OnProcessEnd(const RankIncarnation& who, const ExitCause& cause) {
  table_[who.rank].reaping = true;
  ClearAway(who, cause, SteadyClock::SteadyNow() + kClearAwayLimit);
}

void WorkerEnds::ClearAway(const RankIncarnation& who, ExitCause cause, TimePoint until) {
  Worker& worker = table_[who.rank];
  KINTSUGI_CHECK(worker.reaping && worker.incarnation == who.incarnation,
                 "rank " + who.rank.ToString() + " has a successor before what was left behind is gone");
  const size_t left = guard_.KillLeftBehind(worker.life);
  if (left == 0 || SteadyClock::SteadyNow() >= until) {
    if (left > 0)
      log_->Write(LogLevel::kWarning, LogLine("left_behind", {{"rank", who.rank.ToString()},
                                                              {"processes", std::to_string(left)},
                                                              {"why", "killed, and hanging in the kernel"}}));
    worker.reaping = false;
    return Tell(who, cause);
  }
  auto again = std::make_shared<boost::asio::steady_timer>(io_, kClearAwayEvery);
  again->async_wait(
      [this, again, alive = std::weak_ptr(alive_), who, cause, until](const boost::system::error_code& error) {
        if (!error && !alive.expired()) ClearAway(who, cause, until);
      });
}

void WorkerEnds::Tell(const RankIncarnation& who, const ExitCause& cause) {
  Worker& worker = table_[who.rank];
  // What it left in its page counts: it may have committed, and told so, a microsecond before it died.
  pages_.Read(who.rank, worker);
  worker.stacks.reset();
  std::string text = cause.text;
  if (!worker.kill_reason.empty()) text += " (" + worker.kill_reason + ")";
  output_.OnEnded(who, text);
  text += LastWords(cause);
  // What follows from it is told as a warning: the incident, or the end of the run.
  log_->Write(
      LogLevel::kInfo,
      LogLine("exited", {{"rank", who.rank.ToString()}, {"incarnation", who.incarnation.ToString()}, {"cause", text}}));
  std::optional<TimePoint> since;
  if (const uint64_t at = worker.words().PresentFaultNs()) since = TimePoint(Duration(static_cast<int64_t>(at)));
  if (options_.adopt && options_.has_ranks)
    events_.OnHeld(who.rank, worker.state.OnExit(who.incarnation, worker.words(), cause));
  if (!options_.has_ranks) worker.state = HeldMemory();
  WorkerEnd end{.cause = text, .at = cause.time, .since = since, .not_struck = pages_.NotStruck(who.rank)};
  if (cause.kind == ExitKind::kExitCode) end.code = cause.code;
  events_.OnExited(who.rank, who.incarnation, end);
  if (worker.next && !table_.leaving())
    // Not from inside the callback of the child that is being replaced.
    boost::asio::post(io_, [this, rank = who.rank] { StartNext(rank); });
  TellIfIdle();
}

// Unless another one was started meanwhile, or none is to be any more.
void WorkerEnds::StartNext(Rank rank) {
  Worker& worker = table_[rank];
  const auto next = std::exchange(worker.next, std::nullopt);
  if (next && !worker.running()) starter_.Start({rank, *next});
}

void WorkerEnds::OnOutputEnd(Rank rank) {
  output_.OnOutputEnd(rank);
  TellIfIdle();
}

void WorkerEnds::TellIfIdle() {
  if (!table_.running()) events_.OnIdle();
}

}  // namespace kintsugi
