// How a rank's process comes to be: a new one, or a spare that has been waiting.
#include <algorithm>
#include <utility>

#include "runtime/launcher/worker_pool.h"
#include "runtime/process/orphans.h"

namespace kintsugi {
namespace {

constexpr const char* kLifeName = "KINTSUGI_LIFE";

}  // namespace

ProcessSpec WorkerPool::CommonSpec() const {
  ProcessSpec spec;
  spec.program = options_.program;
  spec.args = options_.args;
  spec.environment = options_.environment;
  spec.environment["WORLD_SIZE"] = std::to_string(options_.world_size);
  spec.environment["LOCAL_WORLD_SIZE"] = std::to_string(options_.local_ranks);
  // What else scripts read that were written for torchrun. There is one role, and a node is a group.
  spec.environment["GROUP_WORLD_SIZE"] = std::to_string(options_.world_size / options_.local_ranks);
  spec.environment["ROLE_NAME"] = "default";
  spec.environment["ROLE_WORLD_SIZE"] = std::to_string(options_.world_size);
  spec.environment["TORCHELASTIC_RUN_ID"] = options_.job;
  spec.environment["MASTER_ADDR"] = options_.master_address;
  spec.environment["MASTER_PORT"] = std::to_string(options_.master_port);
  spec.environment["KINTSUGI_DEVICES"] = std::to_string(options_.devices > 0 ? options_.devices : options_.local_ranks);
  spec.environment["KINTSUGI_ADDRESS"] = options_.address;
  spec.environment["KINTSUGI_CONTROLLER"] = options_.controller;
  spec.environment["KINTSUGI_JOB"] = options_.job;
  spec.environment["KINTSUGI_LAUNCHER"] = mark_;
  spec.unset_environment = {"RANK", "LOCAL_RANK", "ROLE_RANK", "KINTSUGI_INCARNATION", "KINTSUGI_SPARE_FD",
                            "KINTSUGI_STATE_FD", "KINTSUGI_DEVICE", "KINTSUGI_WARM_FD", "KINTSUGI_FORK_FD",
                            // Of a torchrun around the launcher: a store and a file that are not for these ranks.
                            "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE"};
  for (const char* place : {"NODE_RANK", "GROUP_RANK"}) {
    if (options_.has_ranks)
      spec.environment[place] = std::to_string(options_.node_rank);
    else  // not known yet
      spec.unset_environment.push_back(place);
  }
  spec.passed_fds = {{secret_fd_.get(), "KINTSUGI_SECRET_FD"}, {devices_.fd(), "KINTSUGI_DEVICE_FD"}};
  if (warm_) spec.passed_fds.push_back({warm_->list_fd(), "KINTSUGI_WARM_FD"});
  return spec;
}

Result<std::unique_ptr<ChildProcess>> WorkerPool::Launch(std::shared_ptr<Seat> seat, ProcessSpec spec) {
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
    if (const auto place = seat->place) return OnProcessEnd(place->rank, place->incarnation, cause);
    (void)KillOrphans(seat->life, [this](pid_t pid) { return IsKnown(pid); });
    spares_->OnExit(seat.get(), cause);
  };
  callbacks.on_line = [this, seat](OutputStream stream, std::string_view line) { OnLine(*seat, stream, line); };
  callbacks.on_output_end = [this, seat] {
    if (!seat->place) return;
    if (options_.rank_files) options_.rank_files->OnOutputEnd(seat->place->rank);
    TellIfIdle();
  };
  if (ForkServer* const server = warm_ ? warm_->server() : nullptr) {
    auto forked = ChildProcess::Spawn(io_, spec, callbacks, {guardian_.get(), &oom_, server});
    if (forked.ok()) {
      seat->forked = true;
      return forked;
    }
    log_->Write(LogLevel::kWarning, LogLine("not_forked", {{"why", forked.status().message()}}));
  }
  return ChildProcess::Spawn(io_, spec, std::move(callbacks), {guardian_.get(), &oom_});
}

// It is no rank: it gets neither a page nor the secret.
Result<std::unique_ptr<ChildProcess>> WorkerPool::LaunchWarm(int server_fd, int list_fd) {
  ProcessSpec spec = CommonSpec();
  spec.args = options_.warm_args;
  spec.passed_fds = {{server_fd, "KINTSUGI_FORK_FD"}, {list_fd, "KINTSUGI_WARM_FD"}};
  ChildProcess::Callbacks callbacks;
  callbacks.on_exit = [this](const ExitCause& cause) { warm_->OnExit(cause); };
  callbacks.on_line = [this](OutputStream stream, std::string_view line) { OnLine({}, stream, line); };
  return ChildProcess::Spawn(io_, spec, std::move(callbacks), {guardian_.get(), &oom_});
}

void WorkerPool::OnLine(const Seat& seat, OutputStream stream, std::string_view line) {
  if (options_.rank_files && seat.place) options_.rank_files->OnLine(seat.place->rank, line);
  if (options_.rank_files && !seat.place) options_.rank_files->OnSpareLine(line);
  if (!options_.show_output) return;
  output_->WriteLine(seat.place ? std::optional(seat.place->rank) : std::nullopt, stream, line);
}

void WorkerPool::Start(Rank rank, Incarnation incarnation) {
  if (leaving_) return;
  Slot& slot = slots_[rank];
  slot.child.reset();
  slot.reports.reset();
  slot.incarnation = incarnation;
  slot.kill_reason.clear();
  slot.stopped_at.reset();
  slot.armed.clear();
  for (const LedgerEntry& entry : ledger_.ForRank(rank)) {
    slot.armed.push_back(entry.id.ToString() + " " + ToString(entry.injection));
    (void)ledger_.MarkHanded(entry.id);
  }
  events_.OnStarting(rank, incarnation, slot.armed);
  const bool from_spare = TakeSpare({rank, incarnation}, slot);
  const Status started = from_spare ? Status::Ok() : StartProcess({rank, incarnation}, slot);
  spares_->OnRankStarted(SteadyClock::SteadyNow());
  if (warm_) warm_->OnRankStarted(SteadyClock::SteadyNow());
  if (started.ok() && options_.rank_files) options_.rank_files->OnBegan(rank, incarnation, slot.child->pid());
  if (started.ok())
    return log_->Write(LogLevel::kInfo, LogLine(from_spare ? "spare_took_over" : "spawned",
                                                {{"rank", rank.ToString()},
                                                 {"incarnation", incarnation.ToString()},
                                                 {"pid", std::to_string(slot.child->pid())},
                                                 {"device", std::to_string(DeviceOf(rank))},
                                                 {"how", slot.forked ? "forked" : "started"}}));
  log_->Write(LogLevel::kError, LogLine("spawn_failed", {{"rank", rank.ToString()}, {"why", started.message()}}));
  events_.OnExited(rank, incarnation, "could not be started: " + started.message(), SteadyClock::SteadyNow(),
                   std::nullopt);
}

Status WorkerPool::StartProcess(const Place& place, Slot& slot) {
  KINTSUGI_ASSIGN_OR_RETURN(SharedPage page, SharedPage::Create());
  const int local_rank = place.rank.value() - options_.first_rank.value();
  const std::optional<int> device = devices_.pool().Assign(local_rank);
  if (!device)
    return {StatusCode::kUnavailable, "no device is left for it on this node; excluded: " + devices_.pool().Excluded()};
  ProcessSpec spec = CommonSpec();
  spec.environment["KINTSUGI_DEVICE"] = std::to_string(*device);
  spec.environment["RANK"] = place.rank.ToString();
  spec.environment["LOCAL_RANK"] = std::to_string(local_rank);
  spec.environment["ROLE_RANK"] = place.rank.ToString();
  spec.environment["TORCHELASTIC_RESTART_COUNT"] = std::to_string(place.incarnation.value() - 1);
  spec.environment["KINTSUGI_INCARNATION"] = place.incarnation.ToString();
  spec.passed_fds.push_back({page.fd(), "KINTSUGI_PAGE_FD"});
  slot.page.emplace(std::move(page));
  slot.reports.emplace(slot.page->words().reports);
  auto seat = std::make_shared<Seat>();
  seat->place = place;
  KINTSUGI_ASSIGN_OR_RETURN(slot.child, Launch(seat, std::move(spec)));
  slot.life = seat->life;
  slot.forked = seat->forked;
  if (seat->state) slot.state.Attach(std::move(*seat->state));
  return Status::Ok();
}

// ---- spares ------------------------------------------------------------------------------------------------------

// A spare has no device yet: where ranks have devices of their own, it can only stand in on the one that its rank has.
bool WorkerPool::TakeSpare(const Place& place, Slot& slot) {
  if (devices_.pool().IsExcluded(DeviceOf(place.rank))) return false;
  std::optional<Spare> spare = spares_->Take(place, SteadyClock::SteadyNow());
  if (!spare) return false;
  slot.page.emplace(std::move(spare->page));
  slot.reports.emplace(slot.page->words().reports);
  slot.child = std::move(spare->child);
  slot.life = spare->seat->life;
  slot.forked = spare->seat->forked;
  if (spare->seat->state) slot.state.Attach(std::move(*spare->seat->state));
  TellSpares();
  return true;
}

bool WorkerPool::AllCompute() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const auto& entry) {
    const Slot& slot = entry.second;
    return slot.running() && UnpackProgress(slot.page->words().progress.load()).step > 0;
  });
}

void WorkerPool::TellSpares() {
  const int waiting = spares_->waiting(SteadyClock::SteadyNow());
  if (waiting != std::exchange(spares_told_, waiting)) events_.OnSpares(waiting);
}

}  // namespace kintsugi
