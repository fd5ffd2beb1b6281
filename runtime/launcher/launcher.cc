#include "runtime/launcher/launcher.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/launcher/impl.h"
#include "runtime/launcher/node_parts.h"

namespace kintsugi {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(10);
constexpr Duration kProgressInterval = std::chrono::milliseconds(100);
constexpr Duration kPagesIntervalMax = std::chrono::milliseconds(250);
// How long workers may take to leave once the run has ended.
constexpr Duration kLeaveLimit = std::chrono::seconds(10);
constexpr Duration kLastTurn = std::chrono::milliseconds(20);

// A port that is free now, for the trainer's own use (MASTER_PORT).
uint16_t FreePort(const std::string& on_address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (inet_pton(AF_INET, on_address.c_str(), &address.sin_addr) != 1) address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  uint16_t port = 0;
  if (fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    port = ntohs(address.sin_port);
  if (fd >= 0) close(fd);
  return port;
}

}  // namespace

Launcher::Launcher(LauncherOptions options, std::shared_ptr<LogSink> log)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(log))) {}
Launcher::~Launcher() = default;
void Launcher::OnProgress(std::function<void(const RunProgress&)> listener) { impl_->listener_ = std::move(listener); }
Result<RunResult> Launcher::Run() { return impl_->Run(); }

Launcher::Impl::Impl(LauncherOptions options, std::shared_ptr<LogSink> log)
    : options_(std::move(options)),
      log_(std::move(log)),
      signals_(io_),
      poll_(io_),
      leave_(io_),
      pool_(io_, *this, log_) {}

Launcher::Impl::~Impl() = default;

Status Launcher::Impl::CheckInjections() {
  for (const Injection& injection : options_.injections) {
    if (injection.rank.value() >= options_.policy.world_size)
      return {StatusCode::kInvalidArgument, "fault '" + ToString(injection) + "': there is no rank " +
                                                injection.rank.ToString() + " in a world of " +
                                                std::to_string(options_.policy.world_size)};
    if (NodeOf(injection.rank) == 0) KINTSUGI_RETURN_IF_ERROR(pool_.Arm(injection).status());
  }
  return Status::Ok();
}

Status Launcher::Impl::SetUp() {
  KINTSUGI_RETURN_IF_ERROR(options_.policy.Validate());
  if (options_.policy.world_size % options_.nodes != 0)
    return {StatusCode::kInvalidArgument, "a world of " + std::to_string(options_.policy.world_size) +
                                              " ranks does not spread evenly over " + std::to_string(options_.nodes) +
                                              " nodes"};
  KINTSUGI_RETURN_IF_ERROR(CheckInjections());
  std::shared_ptr<const net::Secret> secret = options_.secret;
  if (!secret) {
    KINTSUGI_ASSIGN_OR_RETURN(secret, net::Secret::Generate());
  }
  ControllerOptions controller;
  controller.policy = options_.policy;
  controller.job = options_.job;
  controller.bind_address = options_.bind_address;
  controller.port = options_.port;
  controller.tls = options_.tls;
  if (options_.nodes > 1) controller.limits = LinkLimits(LocalRanks());
  controller_ = std::make_unique<Controller>(io_, controller, secret, *this, log_);
  KINTSUGI_RETURN_IF_ERROR(controller_->Listen());
  const uint16_t master_port = FreePort(options_.node_address);
  WorkerPoolOptions pool = PoolOptionsOf(options_, 0);
  pool.master_address = options_.node_address;
  pool.master_port = master_port;
  pool.controller = options_.bind_address + ":" + std::to_string(controller_->port());
  KINTSUGI_RETURN_IF_ERROR(pool_.SetUp(std::move(pool), *secret));
  if (options_.nodes > 1) {
    hub_ = std::make_unique<NodeHub>(
        NodeHubOptions{
            options_.job, controller.term, options_.nodes, LocalRanks(), options_.node_address, master_port,
            std::clamp<Duration>(options_.policy.silence / 4, std::chrono::milliseconds(10), kPagesIntervalMax)},
        *controller_, *this, log_);
    controller_->ServeNodes(*hub_);
    for (int node = 1; node < options_.nodes; ++node) nodes_[node].lost_at = SteadyClock::SteadyNow();
  }
  if (!options_.run_directory.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(control_, net::ControlSocket::Listen(
                                            io_, options_.run_directory + "/control.sock",
                                            [this](std::string request, net::ControlSocket::Respond respond) {
                                              OnRequest(request, std::move(respond));
                                            }));
  }
  // Not before the control socket: the folder may be another run's.
  if (!options_.journal.path.empty()) Record();
  views_.resize(static_cast<size_t>(options_.policy.world_size));
  return Status::Ok();
}

void Launcher::Impl::Record() {
  if (const Status recorded = controller_->Record(options_.journal); !recorded.ok())
    return log_->Write(LogLevel::kWarning, LogLine("not_recorded", {{"why", recorded.message()}}));
  // A journal that lies elsewhere is found through the run's folder too.
  const std::string here = options_.run_directory + "/" + journal::kFileName;
  if (options_.run_directory.empty() || options_.journal.path == here) return;
  unlink(here.c_str());
  if (symlink(options_.journal.path.c_str(), here.c_str()) != 0)
    log_->Write(LogLevel::kWarning, LogLine("journal_elsewhere", {{"file", options_.journal.path}}));
}

Result<RunResult> Launcher::Impl::Run() {
  KINTSUGI_RETURN_IF_ERROR(SetUp());
  result_.begin = SteadyClock::SteadyNow();
  result_.resumed_from = options_.policy.resume_step;
  signals_.Watch([this](int number, int times) { OnSignal(number, times); });
  StartWhenComplete();
  Poll();
  io_.run();
  pool_.KillAll();
  result_.end = SteadyClock::SteadyNow();
  result_.reports = controller_->reports().Committed(options_.policy.resume_step, result_.committed);
  result_.reports_lost = pool_.reports_lost() + result_.reports.missing;
  if (result_.reports_lost > 0)
    log_->Write(LogLevel::kWarning,
                LogLine("reports_lost", {{"reports", std::to_string(result_.reports_lost)},
                                         {"hint", "of steps that were committed: the sums of samples lack them"}}));
  pool_.Flush();
  return std::move(result_);
}

void Launcher::Impl::Poll() {
  pool_.Poll();
  const TimePoint now = SteadyClock::SteadyNow();
  if (now - last_progress_ >= kProgressInterval) {
    last_progress_ = now;
    ReportProgress();
    CheckNodes();
  }
  poll_.expires_after(kPollInterval);
  poll_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Poll();
  });
}

void Launcher::Impl::Spawn(Rank rank, Incarnation incarnation) {
  const int node = NodeOf(rank);
  if (node == 0) return pool_.Spawn(rank, incarnation);
  if (!hub_->Send(node, wire::SpawnWorker{rank, incarnation})) nodes_[node].to_spawn[rank] = incarnation;
}

void Launcher::Impl::Kill(Rank rank, Incarnation incarnation, const std::string& reason) {
  const int node = NodeOf(rank);
  if (node == 0) return pool_.Kill(rank, incarnation, reason);
  // A node that is away is told when it comes back.
  hub_->Send(node, wire::KillWorker{rank, incarnation, reason});
}

void Launcher::Impl::OnSignal(int number, int times) {
  if (times > 1) return EndNow("ended at once by a second " + SignalName(number));
  log_->Write(LogLevel::kWarning,
              LogLine("stop_requested", {{"signal", SignalName(number)},
                                         {"hint", "finishing the step and saving; a second signal ends at once"}}));
  controller_->Feed(core::OperatorStop{});
}

void Launcher::Impl::OnTransition(const core::Transition& t) {
  log_->Write(LogLevel::kInfo,
              LogLine("phase", {{"from", std::string(core::PhaseName(t.from))},
                                {"to", std::string(core::PhaseName(t.to))},
                                {"gen", t.generation.ToString()},
                                {"incident", std::to_string(t.incident)},
                                {"attempt", std::to_string(t.attempt)},
                                {"elapsed_ms", std::to_string(static_cast<int64_t>(
                                                   ToMilliseconds(SteadyClock::SteadyNow() - result_.begin)))},
                                {"reason", t.reason}}));
  ReportProgress();
}

void Launcher::Impl::OnIncident(const core::IncidentRecord& record) {
  IncidentResult incident{record, std::nullopt};
  // The injector's stamp is the true instant of a fault that it caused.
  for (size_t i = fired_attributed_; i < result_.fired.size(); ++i) {
    const FiredInjection& fired = result_.fired[i];
    const auto& ranks = record.ranks;
    if (std::find(ranks.begin(), ranks.end(), fired.injection.rank) == ranks.end()) continue;
    incident.injected = fired;
    incident.record.fault_at = std::min(fired.at, record.detected_at);
    fired_attributed_ = i + 1;
    break;
  }
  result_.incidents.push_back(std::move(incident));
}

void Launcher::Impl::OnNotice(Rank rank, const std::string& text) {
  log_->Write(LogLevel::kInfo, LogLine("notice", {{"rank", rank.ToString()}, {"text", text}}));
}

void Launcher::Impl::OnEnded(const core::RunEnded& ended) {
  ended_ = true;
  pool_.Leave();
  result_.exit_code = ended.exit_code;
  result_.text = ended.text;
  result_.final_digest = ended.final_digest;
  result_.committed = ended.committed;
  log_->Write(ended.exit_code == 0 ? LogLevel::kInfo : LogLevel::kWarning,
              LogLine("run_ended", {{"exit", std::to_string(ended.exit_code)}, {"reason", ended.text}}));
  TellNodesOfEnd();
  leave_.expires_after(kLeaveLimit);
  leave_.async_wait([this](const boost::system::error_code& error) {
    if (!error) EndNow(result_.text);
  });
  StopIfDone();
}

void Launcher::Impl::EndNow(const std::string& why) {
  if (!ended_) {
    ended_ = true;
    result_.exit_code = core::kExitFailed;
    result_.text = why;
  }
  pool_.Leave();
  pool_.KillAll();
  io_.stop();
}

void Launcher::Impl::StopIfDone() {
  // A node leaves once its own ranks have; until then it may have reports to tell.
  if (!ended_ || pool_.running() || (hub_ && hub_->any_connected())) return;
  // One turn more, so that lines still in the pipes come out.
  leave_.expires_after(kLastTurn);
  leave_.async_wait([this](const boost::system::error_code& error) {
    if (!error) io_.stop();
  });
}

}  // namespace kintsugi
