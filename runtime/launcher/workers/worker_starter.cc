#include "runtime/launcher/workers/worker_starter.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

constexpr const char* kLifeName = "KINTSUGI_LIFE";

}  // namespace

WorkerStarter::WorkerStarter(boost::asio::io_context& io, const HostProcesses& processes, WorkerEvents& events,
                             Ledger& ledger, DeviceGuard& devices, JoiningWatch& joining, std::shared_ptr<LogSink> log)
    : io_(io),
      options_(processes.options),
      events_(events),
      table_(processes.table),
      ledger_(ledger),
      output_(processes.output),
      guard_(processes.guard),
      devices_(devices),
      joining_(joining),
      log_(std::move(log)) {}

Status WorkerStarter::SetUp(const std::string& mark, const net::Secret& secret, ProcessEnds& ends) {
  KINTSUGI_CHECK(!spares_, "what starts processes is set up twice");
  ends_ = &ends;
  mark_ = mark;
  KINTSUGI_ASSIGN_OR_RETURN(const int fd, secret.ToFd());
  secret_fd_ = UniqueFd(fd);
  KeepSpares();
  if (options_.warm_args.empty()) return Status::Ok();
  const auto launch = [this](int server_fd, int list_fd) { return LaunchWarm(server_fd, list_fd); };
  KINTSUGI_ASSIGN_OR_RETURN(warm_, WarmProcess::Create(options_.preloads, launch, log_));
  if (!options_.has_ranks) warm_->OnRankStarted(SteadyClock::SteadyNow());
  return Status::Ok();
}

WorkerShares WorkerStarter::Shares() const {
  return {mark_, secret_fd_.get(), devices_.fd(), warm_ ? warm_->list_fd() : -1};
}

// ---- a rank's process --------------------------------------------------------------------------------------------

void WorkerStarter::Start(const RankIncarnation& who) {
  if (table_.leaving()) return;
  if (warm_ && warm_->is_awaited()) {
    waiting_.insert_or_assign(who.rank, who);
    return;
  }
  StartNow(who);
}

void WorkerStarter::StartNow(const RankIncarnation& who) {
  Worker& worker = table_[who.rank];
  KINTSUGI_CHECK(is_set_up() && !worker.running(),
                 "rank " + who.rank.ToString() + " would have two processes, or one before the pool is set up");
  worker.child.reset();
  worker.reports.reset();
  worker.incarnation = who.incarnation;
  worker.kill_reason.clear();
  worker.armed.clear();
  joining_.Forget(who.rank);
  for (const LedgerEntry& entry : ledger_.ForRank(who.rank)) {
    worker.armed.push_back(entry.id.ToString() + " " + ToString(entry.injection));
    (void)ledger_.MarkHanded(entry.id);
  }
  events_.OnStarting(who.rank, who.incarnation, worker.armed);
  const bool from_spare = TakeSpare(who, worker);
  const Status started = from_spare ? Status::Ok() : StartProcess(who, worker);
  spares_->OnRankStarted(SteadyClock::SteadyNow());
  if (warm_) warm_->OnRankStarted(SteadyClock::SteadyNow());
  if (started.ok()) {
    output_.OnBegan(who, worker.child->pid());
    return log_->Write(LogLevel::kInfo, LogLine(from_spare ? "spare_took_over" : "spawned",
                                                {{"rank", who.rank.ToString()},
                                                 {"incarnation", who.incarnation.ToString()},
                                                 {"pid", std::to_string(worker.child->pid())},
                                                 {"device", std::to_string(DeviceOf(who.rank))},
                                                 {"how", worker.forked ? "forked" : "started"}}));
  }
  OnNotStarted(who, started.message());
}

void WorkerStarter::OnNotStarted(const RankIncarnation& who, const std::string& why) {
  log_->Write(LogLevel::kError, LogLine("spawn_failed", {{"rank", who.rank.ToString()}, {"why", why}}));
  events_.OnExited(who.rank, who.incarnation,
                   {.cause = "could not be started: " + why, .at = SteadyClock::SteadyNow()});
}

Status WorkerStarter::StartProcess(const RankIncarnation& who, Worker& worker) {
  KINTSUGI_ASSIGN_OR_RETURN(SharedPage page, SharedPage::Create());
  const std::optional<int> device = devices_.pool().Assign(options_.LocalRankOf(who.rank));
  if (!device)
    return {StatusCode::kUnavailable, "no device is left for it on this node; excluded: " + devices_.pool().Excluded()};
  ProcessSpec spec = RankSpec(options_, Shares(), who, *device);
  spec.environment.merge(devices_.Environment(options_.LocalRankOf(who.rank)));
  spec.passed_fds.push_back({page.fd(), "KINTSUGI_PAGE_FD"});
  worker.Give(std::move(page));
  auto seat = std::make_shared<Seat>();
  seat->who = who;
  KINTSUGI_ASSIGN_OR_RETURN(worker.child, Launch(seat, std::move(spec)));
  Seize(*seat, worker);
  return Status::Ok();
}

// A spare has no device yet: it can only stand in on the one that its rank had from the beginning.
bool WorkerStarter::TakeSpare(const RankIncarnation& who, Worker& worker) {
  const int local_rank = options_.LocalRankOf(who.rank), device = devices_.pool().DeviceOf(local_rank);
  if (devices_.pool().IsExcluded(device) || device != devices_.pool().HomeOf(local_rank)) return false;
  std::optional<Spare> spare = spares_->Take(who, SteadyClock::SteadyNow());
  if (!spare) return false;
  worker.Give(std::move(spare->page));
  worker.child = std::move(spare->child);
  Seize(*spare->seat, worker);
  TellSpares(SteadyClock::SteadyNow());
  return true;
}

// What its process has is the rank's from now on.
void WorkerStarter::Seize(Seat& seat, Worker& worker) {
  KINTSUGI_CHECK(worker.child && worker.page && seat.who && !seat.life.empty(),
                 "a process has a rank's place without a page, or a mark of its own");
  worker.life = seat.life;
  worker.forked = seat.forked;
  if (seat.state) worker.state.Attach(std::move(*seat.state));
}

Result<std::unique_ptr<ChildProcess>> WorkerStarter::Launch(std::shared_ptr<Seat> seat, ProcessSpec spec) {
  const std::string life = mark_ + "." + std::to_string(++lives_);
  spec.environment[kLifeName] = life;
  seat->life = std::string(kLifeName) + "=" + life;
  std::optional<StateChannel> state;  // the process's end
  if (options_.adopt) {
    KINTSUGI_ASSIGN_OR_RETURN(auto ends, StateChannel::CreatePair());
    seat->state.emplace(std::move(ends.first));
    state.emplace(std::move(ends.second));
    spec.passed_fds.push_back({state->fd(), "KINTSUGI_STATE_FD"});
  }
  ChildProcess::Callbacks callbacks;
  callbacks.on_exit = [this, seat](const ExitCause& cause) {
    if (const auto who = seat->who) return ends_->OnProcessEnd(*who, cause);
    (void)guard_.KillLeftBehind(seat->life);
    spares_->OnExit(seat.get(), cause);
  };
  callbacks.on_line = [this, seat](OutputStream stream, std::string_view line) { output_.OnLine(*seat, stream, line); };
  callbacks.on_output_end = [this, seat] {
    if (seat->who) ends_->OnOutputEnd(seat->who->rank);
  };
  if (ForkServer* const server = warm_ ? warm_->server() : nullptr) {
    auto forked = ChildProcess::Spawn(io_, spec, callbacks, {guard_.guardian(), &oom_, server});
    if (forked.ok()) {
      seat->forked = true;
      return forked;
    }
    log_->Write(LogLevel::kWarning, LogLine("not_forked", {{"why", forked.status().message()}}));
  }
  return ChildProcess::Spawn(io_, spec, std::move(callbacks), {guard_.guardian(), &oom_});
}

// ---- processes that wait -----------------------------------------------------------------------------------------

void WorkerStarter::KeepSpares() {
  const auto launch = [this](std::shared_ptr<Seat> seat, int page_fd, int spare_fd) {
    ProcessSpec spec = CommonSpec(options_, Shares());
    spec.passed_fds.push_back({page_fd, "KINTSUGI_PAGE_FD"});
    spec.passed_fds.push_back({spare_fd, "KINTSUGI_SPARE_FD"});
    return Launch(std::move(seat), std::move(spec));
  };
  spares_.emplace(options_.has_ranks ? options_.spares : std::max(options_.spares, options_.local_ranks), launch, log_);
  if (!options_.has_ranks) spares_->OnRankStarted(SteadyClock::SteadyNow());
}

Result<std::unique_ptr<ChildProcess>> WorkerStarter::LaunchWarm(int server_fd, int list_fd) {
  ChildProcess::Callbacks callbacks;
  callbacks.on_exit = [this](const ExitCause& cause) { warm_->OnExit(cause); };
  callbacks.on_line = [this](OutputStream stream, std::string_view line) { output_.OnLine({}, stream, line); };
  return ChildProcess::Spawn(io_, WarmSpec(options_, Shares(), server_fd, list_fd), std::move(callbacks),
                             {guard_.guardian(), &oom_});
}

void WorkerStarter::Poll(TimePoint now) {
  const bool computing = !options_.has_ranks || table_.AllCompute();
  if (spares_) {
    spares_->Poll(computing, now);
    TellSpares(now);
  }
  if (!warm_) return;
  warm_->Poll(computing, now);
  if (warm_->is_awaited()) return;
  for (const auto& [rank, who] : std::exchange(waiting_, {})) {
    if (table_.leaving()) return;
    if (warm_->lacks().empty())
      StartNow(who);
    else
      OnNotStarted(who, warm_->lacks());
  }
}

void WorkerStarter::TellSpares(TimePoint now) {
  const int waiting = spares_->waiting(now);
  if (waiting != std::exchange(spares_told_, waiting)) events_.OnSpares(waiting);
}

bool WorkerStarter::Has(pid_t pid) const { return (spares_ && spares_->Has(pid)) || (warm_ && warm_->Is(pid)); }

void WorkerStarter::End() {
  waiting_.clear();
  if (spares_) spares_->End();
  if (warm_) warm_->End();
}

void WorkerStarter::Clear() {
  spares_.reset();
  warm_.reset();
}

}  // namespace kintsugi
