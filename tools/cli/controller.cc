// kintsugi controller: the decision maker alone. Ranks that something else starts join it by themselves and beat by
// themselves; lost ones are replaced by what starts them.
#include "runtime/controller/controller.h"

#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <fstream>
#include <iostream>

#include "runtime/controller/incident_line.h"
#include "runtime/launcher/run/save_history.h"
#include "runtime/launcher/run/stop_signals.h"
#include "runtime/net/event_loop.h"
#include "tools/cli/attendance.h"
#include "tools/cli/common.h"

namespace kintsugi::cli {
namespace {

class StandAlone final : public ControllerHost {
 public:
  StandAlone(boost::asio::io_context& io, std::shared_ptr<LogSink> log) : io_(io), log_(std::move(log)) {}
  int exit_code = core::kExitFailed;

  void Spawn(Rank, Incarnation) override {}
  void Kill(Rank rank, Incarnation, const std::string& reason) override {
    // Nobody here can reach the process: its connection is refused from now on, and its starter must end it.
    log_->Write(LogLevel::kWarning, LogLine("given_up", {{"rank", rank.ToString()}, {"why", reason}}));
  }
  void OnTransition(const core::Transition& t) override {
    log_->Write(LogLevel::kInfo, LogLine("phase", {{"from", std::string(core::PhaseName(t.from))},
                                                   {"to", std::string(core::PhaseName(t.to))},
                                                   {"gen", t.generation.ToString()},
                                                   {"reason", t.reason}}));
  }
  void OnIncident(const core::IncidentRecord& record) override {
    log_->Write(LogLevel::kWarning, IncidentLine(record, SteadyClock::SteadyNow()));
  }
  void OnCheckpoint(const core::Checkpoint& checkpoint) override {
    saves_.OnMade(checkpoint, SteadyClock::SteadyNow());
  }
  void OnSave(const core::SaveSettled& settled) override {
    const std::string line =
        settled.saved ? saves_.OnRemark(settled) : saves_.OnFailed(settled, SteadyClock::SteadyNow());
    if (!line.empty()) log_->Write(LogLevel::kWarning, line);
  }
  void OnRoadClosed(const core::RoadClosed& road) override { log_->Write(LogLevel::kWarning, UnreachableLine(road)); }
  void OnAttempts(const core::AttemptsGrow& grown) override { log_->Write(LogLevel::kWarning, GoesOnLine(grown)); }
  void OnHang(const core::Blame& blame) override {
    for (const std::string& line : HangLines(blame)) log_->Write(LogLevel::kWarning, line);
  }
  void OnNotice(Rank rank, const std::string& text) override {
    log_->Write(LogLevel::kInfo, LogLine("notice", {{"rank", rank.ToString()}, {"text", text}}));
  }
  void OnEnded(const core::RunEnded& ended) override {
    exit_code = ended.exit_code;
    log_->Write(LogLevel::kInfo, LogLine("run_ended", {{"exit", std::to_string(ended.exit_code)},
                                                       {"step", ended.committed.ToString()},
                                                       {"digest", ended.final_digest ? Hex(*ended.final_digest) : ""},
                                                       {"reason", ended.text}}));
    // The orders to leave are still in the send queues.
    leave_.emplace(io_, std::chrono::seconds(1));
    leave_->async_wait([this](const boost::system::error_code&) { io_.stop(); });
  }

 private:
  boost::asio::io_context& io_;
  std::shared_ptr<LogSink> log_;
  SaveHistory saves_;
  std::optional<boost::asio::steady_timer> leave_;
};

constexpr const char* kDefaultJob = "job";

struct ServeOptions {
  int world_size = 0;
  AttendanceOptions attendance;
  RunOptions run;  // with run.node.controllers: leads the launchers of several nodes
  int port = 18800;
  std::string job = kDefaultJob;
  int secret_fd = -1;
  std::string journal;
};

// A descriptor for each rank. No process is started here that would inherit the limit.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

RunOptions OverLaunchers(const ServeOptions& options) {
  RunOptions run = options.run;
  if (options.job != kDefaultJob) run.node.job = options.job;
  if (run.node.controller_rank < 0) run.node.controller_rank = 0;
  return run;
}

// Of ranks that nobody here can start.
Result<core::Policy> PolicyOf(const ServeOptions& options) {
  KINTSUGI_ASSIGN_OR_RETURN(core::Policy policy, MakePolicy(options.run));
  policy.world_size = options.world_size;
  policy.can_spawn = false;
  KINTSUGI_RETURN_IF_ERROR(policy.Validate());
  if (!options.run.save_dir.empty()) KINTSUGI_RETURN_IF_ERROR(CheckSaveRoot(options.run.save_dir));
  return policy;
}

void AddLeadingOptions(CLI::App& app, RunOptions& o) {
  app.add_option(
      "--rendezvous", o.node.controllers,
      "HOST:PORT[,HOST:PORT...] of this controller and its standbys, the same list for each: leads the launchers\n"
      "of `kintsugi run --nnodes N --controller LIST` instead of ranks; when it dies a standby takes over");
  app.add_option("--controller-rank", o.node.controller_rank,
                 "Which of the list this one is (default: 0, which leads first)")
      ->check(CLI::Range(0, 1000));
  app.add_option("--nnodes", o.node.nodes, "With --rendezvous: hosts that run ranks")->check(CLI::Range(1, 100000));
  app.add_option("--nproc", o.nproc, "With --rendezvous: ranks on each of them")->check(CLI::Range(1, 4096));
  app.add_option("--secret-file", o.node.secret_file, "With --rendezvous: 32 random bytes that all share");
  app.add_option("--witness", o.node.witness, "With --rendezvous: etcd that decides even splits, HOST:PORT[,...]");
  app.add_option("--node-wait", o.node.wait, "With --rendezvous: seconds that a lost node may take to come back")
      ->capture_default_str();
  app.add_option("--spare-after", o.node.spare_after,
                 "With --rendezvous: seconds that a node may be away until a spare node takes its ranks over")
      ->capture_default_str();
  app.add_option("--shrink-after", o.node.shrink_after,
                 "With --rendezvous: seconds that a node may be away until the run goes on without it, where the\n"
                 "program offers that")
      ->capture_default_str();
  app.add_option("--json", o.json, "With --rendezvous: summary of the run, of the last leader; - for standard output");
  app.add_option("--report", o.report, "With --rendezvous: folder for its report");
  app.add_option("--ports", o.ports, "With --rendezvous: ports that may be listened on beside it, A-B; default: any");
  app.add_option("--run-dir", o.run_dir, "With --rendezvous: folder of the control socket");
}

Status Serve(const ServeOptions& options, int& exit_code) {
  if (!options.run.node.controllers.empty()) {
    exit_code = RunAndReport(OverLaunchers(options), options.attendance);
    return Status::Ok();
  }
  if (options.world_size == 0)
    return {StatusCode::kInvalidArgument,
            "--world-size is missing: the number of ranks that join by themselves (or give --rendezvous, to lead "
            "launchers)"};
  if (options.attendance.any())
    return {StatusCode::kInvalidArgument,
            "--metrics, --page, --on-incident, --webhook and --restarts attend a run that launchers carry out: give "
            "--rendezvous too"};
  RaiseDescriptorLimit();
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<int> further, ParseSignals(options.run.signals));
  KINTSUGI_ASSIGN_OR_RETURN(const std::shared_ptr<logs::Logs> logs,
                            logs::Logs::Open(options.run.log, {.node = "controller", .job = options.job}));
  const std::shared_ptr<LogSink> log = logs->sink();
  if (options.secret_fd < 0)
    return {StatusCode::kInvalidArgument,
            "--secret-fd is missing: the descriptor of a file with the job's 32-byte secret, as in: "
            "kintsugi controller --secret-fd 3 3<secret"};
  KINTSUGI_ASSIGN_OR_RETURN(auto secret, net::Secret::FromFd(options.secret_fd));
  boost::asio::io_context io;
  StandAlone host(io, log);
  ControllerOptions controller_options;
  KINTSUGI_ASSIGN_OR_RETURN(controller_options.policy, PolicyOf(options));
  controller_options.job = options.job;
  controller_options.bind_address = options.run.bind;
  controller_options.port = static_cast<uint16_t>(options.port);
  KINTSUGI_ASSIGN_OR_RETURN(controller_options.tls, net::TlsContext::LoadIfAny(options.run.tls));
  if (controller_options.tls) controller_options.tls->Follow();
  Controller controller(io, controller_options, secret, host, log);
  KINTSUGI_RETURN_IF_ERROR(controller.Listen());
  if (!options.journal.empty())
    KINTSUGI_RETURN_IF_ERROR(controller.Record({.path = options.journal, .bytes_max = options.run.journal_mib << 20}));
  std::cout << "listening on " << options.run.bind << ":" << controller.port() << std::endl;
  StopSignals signals(io);
  signals.Watch(further, [&](int, int) { controller.Feed(core::OperatorStop{}); });
  controller.Start();
  KINTSUGI_RETURN_IF_ERROR(net::RunGuarded(io, *log));
  exit_code = host.exit_code;
  return Status::Ok();
}

}  // namespace

void AddController(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ServeOptions>();
  RunOptions& run = options->run;
  run.save_dir.clear();
  CLI::App* command = app.add_subcommand("controller",
                                         "Decide alone, for ranks that something else starts (RANK, WORLD_SIZE,\n"
                                         "KINTSUGI_CONTROLLER=HOST:PORT, KINTSUGI_JOB and KINTSUGI_SECRET_FD set)");
  command->add_option("--world-size", options->world_size, "Number of ranks that join by themselves")
      ->check(CLI::Range(1, 1000000));
  command->add_option("--bind", run.bind, "Address to listen on")->capture_default_str();
  command->add_option("--port", options->port, "Port to listen on; 0: any")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  command->add_option("--job", options->job, "The job's name, as the ranks or nodes say it")->capture_default_str();
  command->add_option("--secret-fd", options->secret_fd, "Descriptor of the job's secret");
  AddTlsOptions(*command, run.tls);
  AddSignalOption(*command, run);
  AddLeadingOptions(*command, run);
  AddAttendanceOptions(*command, options->attendance);
  command->add_option("--save-dir", run.save_dir, "Root of checkpoints; empty: nothing is saved");
  command->add_option("--save-every", run.save_every, "Save every N steps; 0: never")->capture_default_str();
  command->add_option("--resume", run.resume,
                      "Go on from the newest complete checkpoint in this root; 'auto': in --save-dir, or begin");
  command->add_option("--grace", run.grace, "Seconds to save after a stop was asked for")->capture_default_str();
  command->add_option("--verify-every", run.verify_every, "Compare replicas each N steps; 0: in recovery only")
      ->capture_default_str();
  command
      ->add_option("--snapshot-every", run.snapshot_every,
                   "In-memory snapshots each N steps, or 'auto', as in kintsugi run")
      ->capture_default_str();
  command
      ->add_option("--max-respawns", run.max_respawns,
                   "How often one rank may be replaced; ranks that join by themselves are waited for that often")
      ->capture_default_str();
  command->add_option("--step-timeout", run.step_timeout, "Longest healthy step in seconds")->capture_default_str();
  command
      ->add_option("--join-timeout", run.join_timeout, "Seconds from a program's start, or its end, to its being ready")
      ->capture_default_str();
  command->add_option("--silence", run.silence, "Seconds without a sign of life that make a fault")
      ->capture_default_str();
  command->add_option("--hang-factor", run.hang_factor, "Learnt step times without progress that make a hang; 0: never")
      ->capture_default_str();
  command->add_option("--hang-least", run.hang_least, "Shortest such time in seconds")->capture_default_str();
  command->add_option("--journal", options->journal,
                      "File to record every decision in, for `kintsugi replay --journal`");
  command->add_option("--journal-mib", run.journal_mib, "Its greatest size in MiB")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  AddLogOptions(*command, run.log);
  command->callback([options, &exit_code] {
    const Status served = Serve(*options, exit_code);
    if (served.ok()) return;
    Complain(served.message());
    exit_code = served.code() == StatusCode::kInvalidArgument ? core::kExitUsage : core::kExitStartup;
  });
}

}  // namespace kintsugi::cli
