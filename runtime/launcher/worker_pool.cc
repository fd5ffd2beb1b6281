#include "runtime/launcher/worker_pool.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <csignal>
#include <fstream>
#include <iterator>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/process/orphans.h"

namespace kintsugi {
namespace {

constexpr Duration kSettleInterval = std::chrono::milliseconds(100);
// Agents beat every 50 ms.
constexpr Duration kAliveFor = std::chrono::milliseconds(250);
constexpr Duration kStacksLimit = std::chrono::seconds(1);
// What a process left behind is waited for, killed as it is, for so long: it may hang in the kernel.
constexpr Duration kClearAwayLimit = std::chrono::seconds(2);
constexpr std::chrono::milliseconds kFlushLimit{1000};
constexpr Duration kClearAwayEvery = std::chrono::milliseconds(2);

// As the kernel shows it: 'T' is stopped by a signal; 0: there is no such process.
char StateOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && name_end + 2 < stat.size() ? stat[name_end + 2] : 0;
}

}  // namespace

WorkerPool::WorkerPool(boost::asio::io_context& io, WorkerEvents& events, std::shared_ptr<LogSink> log)
    : io_(io), events_(events), log_(std::move(log)), devices_(io, log_) {}

// Children first: their callbacks use everything else.
WorkerPool::~WorkerPool() {
  slots_.clear();
  spares_.reset();
  warm_.reset();
}

Status WorkerPool::SetUp(WorkerPoolOptions options, const net::Secret& secret) {
  KINTSUGI_CHECK(!spares_, "a pool is set up twice");
  options_ = std::move(options);
  KINTSUGI_ASSIGN_OR_RETURN(const int fd, secret.ToFd());
  secret_fd_ = UniqueFd(fd);
  // This pool's own processes, and those of no other node that happens to run on the same host.
  mark_ = options_.job + "." + std::to_string(options_.node_rank) + "." + std::to_string(getpid());
  BecomeReaper();
  KINTSUGI_ASSIGN_OR_RETURN(guardian_, Guardian::Start("KINTSUGI_LAUNCHER=" + mark_));
  OutputPrefixer::Options output;
  if (options_.output_to_stderr) output.stdout_fd = 2;
  output_ = options_.output ? options_.output : std::make_shared<OutputPrefixer>(output);
  const auto rank_of = [this](int pid) {
    for (const auto& [rank, slot] : slots_)
      if (slot.child && slot.child->running() && slot.child->pid() == pid)
        return rank.value() - options_.first_rank.value();
    return -1;
  };
  const auto on_fault = [this](const std::vector<int>& ranks, const std::string& why) { OnDeviceFault(ranks, why); };
  KINTSUGI_RETURN_IF_ERROR(devices_.SetUp({options_.devices, options_.local_ranks}, rank_of, on_fault));
  KeepSpares();
  if (!options_.warm_args.empty()) {
    const auto launch_warm = [this](int server_fd, int list_fd) { return LaunchWarm(server_fd, list_fd); };
    KINTSUGI_ASSIGN_OR_RETURN(warm_, WarmProcess::Create(launch_warm, log_));
    if (!options_.has_ranks) warm_->OnRankStarted(SteadyClock::SteadyNow());
  }
  return Status::Ok();
}

// On a node without ranks at once; elsewhere once its ranks have been started.
void WorkerPool::KeepSpares() {
  const auto launch = [this](std::shared_ptr<Seat> seat, int page_fd, int spare_fd) {
    ProcessSpec spec = CommonSpec();
    spec.passed_fds.push_back({page_fd, "KINTSUGI_PAGE_FD"});
    spec.passed_fds.push_back({spare_fd, "KINTSUGI_SPARE_FD"});
    return Launch(std::move(seat), std::move(spec));
  };
  spares_.emplace(options_.has_ranks ? options_.spares : std::max(options_.spares, options_.local_ranks), launch, log_);
  if (!options_.has_ranks) spares_->OnRankStarted(SteadyClock::SteadyNow());
}

void WorkerPool::TakeBlock(int block) {
  KINTSUGI_CHECK(spares_ && !options_.has_ranks, "a host takes ranks before it gave its own up");
  options_.has_ranks = true;
  options_.node_rank = block;
  options_.first_rank = Rank(block * options_.local_ranks);
  std::erase_if(slots_, [](const auto& entry) { return !entry.second.running() && !entry.second.stacks; });
  spares_->Want(options_.spares);
}

// Its spares were started as this node's of the run, and say so to their program: others take their places.
void WorkerPool::GiveBlockUp(const std::string& why) {
  KINTSUGI_CHECK(options_.has_ranks, "a host gives ranks up that it has not");
  options_.has_ranks = false;
  for (auto& [rank, slot] : slots_) {
    slot.next.reset();
    if (slot.running())
      Kill(rank, slot.incarnation, why);
    else
      slot.state.Forget();
  }
  KeepSpares();
}

void WorkerPool::Spawn(Rank rank, Incarnation incarnation) {
  KINTSUGI_CHECK(spares_.has_value(), "a process is started before the pool is set up");
  Slot& slot = slots_[rank];
  if (!slot.running()) return Start(rank, incarnation);
  slot.next = incarnation;
  if (!slot.stacks) (void)slot.child->KillGroup(SIGKILL);
}

void WorkerPool::Kill(Rank rank, Incarnation incarnation, const std::string& reason) {
  const auto found = slots_.find(rank);
  if (found == slots_.end() || found->second.incarnation != incarnation) return;
  Slot& slot = found->second;
  slot.kill_reason = reason;
  if (!slot.running() || slot.stacks) return;
  KINTSUGI_CHECK(slot.page.has_value(), "rank " + rank.ToString() + " runs without a page");
  const TimePoint beat(Duration(static_cast<int64_t>(slot.page->words().beat_ns.load())));
  const bool lives = SteadyClock::SteadyNow() - beat < kAliveFor;
  if (lives && !leaving_) DumpStacks(rank, slot);
  if (!slot.stacks) (void)slot.child->KillGroup(SIGKILL);
}

void WorkerPool::OnDeviceFault(const std::vector<int>& local_ranks, const std::string& why) {
  for (int local_rank : local_ranks) {
    const auto found = slots_.find(Rank(options_.first_rank.value() + local_rank));
    if (found == slots_.end() || !found->second.running() || leaving_) continue;
    found->second.kill_reason = why;
    if (!found->second.stacks) (void)found->second.child->KillGroup(SIGKILL);
  }
}

void WorkerPool::DumpStacks(Rank rank, Slot& slot) {
  KINTSUGI_CHECK(slot.child && !slot.stacks, "stacks of no process, or for the second time");
  auto dump = StackDump::Start(
      io_, slot.child->pid(), kStacksLimit,
      [this, rank](std::string_view line) {
        log_->Write(LogLevel::kWarning, LogLine("stack", {{"rank", rank.ToString()}, {"line", std::string(line)}}));
      },
      [&slot] { (void)slot.child->KillGroup(SIGKILL); });  // a slot stays where it is, and its child until it is reaped
  if (dump.ok()) {
    slot.stacks = std::move(dump).value();
    return;
  }
  log_->Write(LogLevel::kInfo, LogLine("no_stack", {{"rank", rank.ToString()}, {"why", dump.status().message()}}));
}

void WorkerPool::KillAll() {
  for (auto& [rank, slot] : slots_)
    if (slot.running()) (void)slot.child->KillGroup(SIGKILL);
}

void WorkerPool::Flush() {
  KINTSUGI_CHECK(output_ != nullptr, "output of a pool that was not set up");
  output_->Flush(kFlushLimit);
  if (options_.rank_files) options_.rank_files->Flush(kFlushLimit);
}

bool WorkerPool::running() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const auto& entry) { return entry.second.running(); });
}

uint64_t WorkerPool::reports_lost() const {
  uint64_t lost = 0;
  for (const auto& [rank, slot] : slots_)
    if (slot.reports) lost += slot.reports->lost();
  return lost;
}

std::vector<WorkerPool::Life> WorkerPool::Lives() const {
  std::vector<Life> lives;
  for (const auto& [rank, slot] : slots_)
    if (slot.running() && !slot.next) lives.push_back({rank, slot.incarnation, slot.armed});
  return lives;
}

void WorkerPool::Leave() {
  leaving_ = true;
  for (auto& [rank, slot] : slots_) slot.state.Forget();
  if (spares_) spares_->End();
  if (warm_) warm_->End();
}

bool WorkerPool::IsKnown(pid_t pid) const {
  if (pid == guardian_->pid() || (spares_ && spares_->Has(pid)) || (warm_ && warm_->Is(pid))) return true;
  return std::any_of(slots_.begin(), slots_.end(), [pid](const auto& entry) {
    const Slot& slot = entry.second;
    return (slot.child && slot.child->pid() == pid) || (slot.stacks && slot.stacks->pid() == pid);
  });
}

void WorkerPool::OnProcessEnd(Rank rank, Incarnation incarnation, const ExitCause& cause) {
  slots_[rank].reaping = true;
  ClearAway(rank, incarnation, cause, SteadyClock::SteadyNow() + kClearAwayLimit);
}

void WorkerPool::ClearAway(Rank rank, Incarnation incarnation, ExitCause cause, TimePoint until) {
  Slot& slot = slots_[rank];
  const size_t left = KillOrphans(slot.life, [this](pid_t pid) { return IsKnown(pid); });
  if (left == 0 || SteadyClock::SteadyNow() >= until) {
    if (left > 0)
      log_->Write(LogLevel::kWarning, LogLine("left_behind", {{"rank", rank.ToString()},
                                                              {"processes", std::to_string(left)},
                                                              {"why", "killed, and hanging in the kernel"}}));
    slot.reaping = false;
    return OnExit(rank, incarnation, cause);
  }
  auto again = std::make_shared<boost::asio::steady_timer>(io_, kClearAwayEvery);
  again->async_wait([this, again, alive = std::weak_ptr(alive_), rank, incarnation, cause,
                     until](const boost::system::error_code& error) {
    if (!error && !alive.expired()) ClearAway(rank, incarnation, cause, until);
  });
}

void WorkerPool::MendGuardian() {
  if (!guardian_) return;
  const Result<bool> mended = guardian_->Mend();
  const std::string trouble = mended.ok() ? "" : mended.status().message();
  if (mended.ok() && *mended)
    log_->Write(LogLevel::kWarning, LogLine("guard_replaced", {{"pid", std::to_string(guardian_->pid())},
                                                               {"why", "the helper had ended"}}));
  if (!trouble.empty() && trouble != guardian_trouble_)
    log_->Write(LogLevel::kError, LogLine("no_guard", {{"why", trouble}}));
  guardian_trouble_ = trouble;
}

void WorkerPool::CheckJoining(Rank rank, Slot& slot, TimePoint now) {
  if (!slot.child || !slot.child->running() || slot.stacks || leaving_ || !slot.kill_reason.empty()) return;
  const SharedWords& words = slot.page->words();
  if (UnpackProgress(words.progress.load()).step > 0) return;  // the controller watches it
  TimePoint since;
  if (const uint64_t beat = words.beat_ns.load()) {
    since = TimePoint(Duration(static_cast<int64_t>(beat)));
  } else if (StateOf(slot.child->pid()) == 'T') {
    if (!slot.stopped_at) slot.stopped_at = now;
    since = *slot.stopped_at;
  } else {
    slot.stopped_at.reset();
    return;  // its program is on its way, which may take as long as it does
  }
  const Duration limit = options_.silence + options_.silence / 4;
  if (now - std::max(since, awake_since_) < limit) return;
  Kill(rank, slot.incarnation,
       "no sign of life for " + std::to_string(static_cast<int64_t>(ToMilliseconds(limit))) +
           " ms before it had joined");
}

void WorkerPool::OnExit(Rank rank, Incarnation incarnation, const ExitCause& cause) {
  Slot& slot = slots_[rank];
  // What it left in its page counts: it may have committed, and told so, a microsecond before it died.
  ReadPage(rank, slot);
  slot.stacks.reset();
  std::string text = cause.text;
  if (!slot.kill_reason.empty()) text += " (" + slot.kill_reason + ")";
  if (options_.rank_files) options_.rank_files->OnEnded(rank, incarnation, text);
  if (!cause.last_stderr_lines.empty()) text += "; last line of its error output: " + cause.last_stderr_lines.back();
  // What follows from it is told as a warning: the incident, or the end of the run.
  log_->Write(LogLevel::kInfo,
              LogLine("exited", {{"rank", rank.ToString()}, {"incarnation", incarnation.ToString()}, {"cause", text}}));
  std::optional<TimePoint> since;
  if (const uint64_t stamp = slot.page->words().fault_ns.load())
    since = TimePoint(Duration(static_cast<int64_t>(stamp)));
  if (options_.adopt && options_.has_ranks)
    events_.OnHeld(rank, slot.state.OnExit(incarnation, slot.page->words(), cause));
  if (!options_.has_ranks) slot.state = StateKeeper();
  events_.OnExited(rank, incarnation, text, cause.time, since);
  if (const auto next = std::exchange(slot.next, std::nullopt); next && !leaving_)
    // Not from inside the callback of the child that is being replaced.
    boost::asio::post(io_, [this, rank, next] { Start(rank, *next); });
  TellIfIdle();
}

void WorkerPool::Poll() {
  for (auto& [rank, slot] : slots_)
    if (slot.running()) ReadPage(rank, slot);
  const TimePoint now = SteadyClock::SteadyNow();
  if (spares_) {
    spares_->Poll(!options_.has_ranks || AllCompute(), now);
    TellSpares();
  }
  if (warm_) warm_->Poll(!options_.has_ranks || AllCompute(), now);
  if (now - last_settled_ < kSettleInterval) return;
  devices_.Poll(now);
  // Whoever slept heard nobody.
  if (now - last_settled_ > 5 * kSettleInterval) awake_since_ = now;
  last_settled_ = now;
  for (auto& [rank, slot] : slots_) CheckJoining(rank, slot, now);
  if (guardian_) {
    MendGuardian();
    ReapOrphans([this](pid_t pid) { return IsKnown(pid); });
  }
  oom_.Settle();
}

void WorkerPool::ReadPage(Rank rank, Slot& slot) {
  if (!slot.page) return;
  SharedWords& words = slot.page->words();
  // The page of a process that has ended says nothing of the one that is to adopt what it left.
  if (slot.running()) slot.state.Poll(words);
  slot.reports->Read([&](const StepReport& report) { events_.OnReport(rank, report); });
  for (const LedgerEntry& entry : ledger_.MarkFiredMask(rank, words.fired_injections.load()))
    events_.OnFired(entry.injection, TimePoint(Duration(static_cast<int64_t>(words.fault_ns.load()))));
  events_.OnPage(rank, slot.incarnation,
                 {words.beat.load(), words.gate_word.load(), words.progress.load(),
                  TimePoint(Duration(static_cast<int64_t>(words.progress_ns.load())))});
}

void WorkerPool::TellReportsAgain() {
  for (auto& [rank, slot] : slots_)
    if (slot.page) slot.reports.emplace(slot.page->words().reports);
  for (auto& [rank, slot] : slots_)
    if (slot.page) ReadPage(rank, slot);
}

std::map<Rank, core::HeldState> WorkerPool::Held() const {
  std::map<Rank, core::HeldState> held;
  for (const auto& [rank, slot] : slots_)
    if (slot.state.held()) held.emplace(rank, *slot.state.held());
  return held;
}

void WorkerPool::TellIfIdle() {
  if (!running()) events_.OnIdle();
}

}  // namespace kintsugi
