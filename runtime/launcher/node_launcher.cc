#include "runtime/launcher/node_launcher.h"

#include <nlohmann/json.hpp>

#include "runtime/base/overloaded.h"
#include "runtime/launcher/node_impl.h"
#include "runtime/launcher/node_parts.h"
#include "runtime/process/exit_cause.h"
#include "runtime/wire/node_codec.h"

namespace kintsugi {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(10);
constexpr Duration kLeaveLimit = std::chrono::seconds(10);
constexpr Duration kLastTurn = std::chrono::milliseconds(20);

}  // namespace

NodeLauncher::NodeLauncher(NodeLauncherOptions options, std::shared_ptr<LogSink> log)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(log))) {}
NodeLauncher::~NodeLauncher() = default;
Result<NodeResult> NodeLauncher::Run() { return impl_->Run(); }

NodeLauncher::Impl::Impl(NodeLauncherOptions options, std::shared_ptr<LogSink> log)
    : options_(std::move(options)),
      log_(std::move(log)),
      signals_(io_),
      poll_(io_),
      leave_(io_),
      pool_(io_, *this, log_),
      relay_(io_, log_) {}

Status NodeLauncher::Impl::SetUp() {
  const LauncherOptions& run = options_.run;
  for (const Injection& injection : run.injections)
    if (injection.rank.value() / LocalRanks() == options_.node_rank)
      KINTSUGI_RETURN_IF_ERROR(pool_.Arm(injection).status());
  KINTSUGI_RETURN_IF_ERROR(relay_.Listen(run.job, run.secret));
  net::ClientOptions client;
  client.self = {run.job, std::string(net::kLauncherRole)};
  client.limits = LinkLimits(LocalRanks());
  net::ClientHandlers handlers;
  handlers.on_open = [this](const net::ConnectionPtr& connection) { OnOpen(connection); };
  handlers.on_frame = [this](const net::ConnectionPtr&, std::string_view payload) { OnFrame(payload); };
  handlers.on_close = [this](const net::ConnectionPtr&, const Status& why) { OnClose(why); };
  handlers.on_failed = [this](const Status& why) { OnNoController(why); };
  KINTSUGI_ASSIGN_OR_RETURN(client_, net::Client::Create(io_, client, run.secret, std::move(handlers)));
  if (!run.run_directory.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(
        control_, net::ControlSocket::Listen(io_, run.run_directory + "/control.sock",
                                             [this](std::string request, net::ControlSocket::Respond respond) {
                                               OnRequest(request, std::move(respond));
                                             }));
  }
  return Status::Ok();
}

Result<NodeResult> NodeLauncher::Impl::Run() {
  KINTSUGI_RETURN_IF_ERROR(SetUp());
  signals_.Watch([this](int number, int times) { OnSignal(number, times); });
  Connect(options_.run.policy.join_timeout);
  Poll();
  io_.run();
  pool_.KillAll();
  if (set_up_) pool_.Flush();
  if (!failed_.ok()) return failed_;
  return *ended_;
}

void NodeLauncher::Impl::OnSignal(int number, int times) {
  if (times > 1 || !link_) return EndNow(core::kExitFailed, "ended at once by " + SignalName(number));
  log_->Write(LogLevel::kWarning,
              LogLine("stop_requested",
                      {{"signal", SignalName(number)},
                       {"hint", "the whole run finishes its step and saves; a second signal ends this node"}}));
  Tell(wire::NodeStop{});
}

void NodeLauncher::Impl::Poll() {
  pool_.Poll();
  const TimePoint now = SteadyClock::SteadyNow();
  if (now - told_pages_ >= beat_) {
    told_pages_ = now;
    TellPages();
  }
  poll_.expires_after(kPollInterval);
  poll_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Poll();
  });
}

void NodeLauncher::Impl::StopIfDone() {
  if (!ended_ || pool_.running()) return;
  leave_.expires_after(kLastTurn);
  leave_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    TellPages();
    if (!link_) return io_.stop();
    link_->Close();  // what is queued is sent; OnClose ends
  });
}

void NodeLauncher::Impl::EndNow(int exit_code, const std::string& why) {
  if (!ended_) ended_ = NodeResult{exit_code, why};
  pool_.Leave();
  pool_.KillAll();
  io_.stop();
}

// ---- the link ----------------------------------------------------------------------------------------------------

void NodeLauncher::Impl::Connect(Duration limit) {
  const Status begun =
      client_->Connect(options_.controller_host, options_.controller_port, SteadyClock::SteadyNow() + limit);
  if (!begun.ok()) OnNoController(begun);
}

void NodeLauncher::Impl::OnOpen(const net::ConnectionPtr& connection) {
  wire::NodeHello hello{options_.node_rank, options_.run.nodes, LocalRanks(), options_.run.node_address, {}};
  for (const WorkerPool::Life& life : pool_.Lives()) hello.lives.push_back({life.rank, life.incarnation, life.armed});
  const Status sent = connection->Send(wire::Encode(options_.run.job, term_, wire::NodeMessage(std::move(hello))));
  if (!sent.ok()) connection->Abort();
}

void NodeLauncher::Impl::OnFrame(std::string_view payload) {
  Result<wire::NodeOrderFrame> frame = wire::DecodeToNode(options_.run.job, payload);
  if (!frame.ok() || frame->term < term_) {
    const std::string why =
        frame.ok() ? "term " + std::to_string(frame->term.number) + " is over" : frame.status().message();
    return log_->Write(LogLevel::kWarning, LogLine("frame_refused", {{"why", why}}));
  }
  term_ = frame->term;
  std::visit(Overloaded{[&](const wire::NodeWelcome& m) { OnWelcome(m); },
                        [&](const wire::SpawnWorker& m) {
                          if (set_up_) pool_.Spawn(m.rank, m.incarnation);
                        },
                        [&](const wire::KillWorker& m) { pool_.Kill(m.rank, m.incarnation, m.reason); },
                        [&](const wire::ToAgentChannel& m) { relay_.Send(m.channel, m.frame); },
                        [&](const wire::CloseAgentChannel& m) { relay_.Close(m.channel); },
                        [&](const wire::NodeEnd& m) { OnEnd(m); }},
             frame->order);
}

void NodeLauncher::Impl::OnWelcome(const wire::NodeWelcome& welcome) {
  if (!welcome.accepted) {
    failed_ = {StatusCode::kInvalidArgument, "the controller refuses this node: " + welcome.text};
    return EndNow(core::kExitStartup, failed_.message());
  }
  link_ = client_->connection();
  beat_ = welcome.beat;
  if (set_up_) {
    pool_.TellReportsAgain();
    Tell(wire::NodeSpares{pool_.spares_waiting()});
  } else {
    WorkerPoolOptions pool = PoolOptionsOf(options_.run, options_.node_rank);
    pool.master_address = welcome.master_address;
    pool.master_port = welcome.master_port;
    pool.controller = "127.0.0.1:" + std::to_string(relay_.port());
    if (const Status ready = pool_.SetUp(std::move(pool), *options_.run.secret); !ready.ok()) {
      failed_ = ready;
      return EndNow(core::kExitStartup, ready.message());
    }
    set_up_ = true;
  }
  log_->Write(
      LogLevel::kInfo,
      LogLine("welcomed", {{"node", std::to_string(options_.node_rank)},
                           {"controller", options_.controller_host + ":" + std::to_string(options_.controller_port)}}));
  relay_.Attach({[this](uint64_t channel, std::string_view payload) {
                   Tell(wire::FromAgentChannel{channel, std::string(payload)});
                 },
                 [this](uint64_t channel) { Tell(wire::AgentChannelClosed{channel}); }});
}

void NodeLauncher::Impl::OnClose(const Status& why) {
  link_.reset();
  relay_.Detach();
  if (ended_) return pool_.running() ? void() : io_.stop();
  log_->Write(LogLevel::kWarning,
              LogLine("controller_lost", {{"node", std::to_string(options_.node_rank)}, {"why", why.message()}}));
  Connect(set_up_ ? options_.controller_wait : options_.run.policy.join_timeout);
}

void NodeLauncher::Impl::OnNoController(const Status& why) {
  if (ended_) return io_.stop();
  if (!set_up_) failed_ = why.Annotate("node " + std::to_string(options_.node_rank) + " found no controller");
  EndNow(core::kExitFailed, "no controller: " + why.message());
}

void NodeLauncher::Impl::OnEnd(const wire::NodeEnd& end) {
  ended_ = NodeResult{end.exit_code, end.text};
  pool_.Leave();
  pool_.Poll();
  leave_.expires_after(kLeaveLimit);
  leave_.async_wait([this](const boost::system::error_code& error) {
    if (!error) EndNow(ended_->exit_code, ended_->text);
  });
  StopIfDone();
}

void NodeLauncher::Impl::Tell(const wire::NodeMessage& message) {
  if (!link_) return;
  const Status sent = link_->Send(wire::Encode(options_.run.job, term_, message));
  if (!sent.ok()) log_->Write(LogLevel::kWarning, LogLine("send_failed", {{"why", sent.message()}}));
}

void NodeLauncher::Impl::TellPages() {
  wire::Pages told;
  for (const auto& [rank, page] : std::exchange(pages_, {})) told.pages.push_back(page);
  if (!told.pages.empty()) Tell(told);
}

// ---- workers -----------------------------------------------------------------------------------------------------

void NodeLauncher::Impl::OnStarting(Rank rank, Incarnation incarnation, std::vector<std::string> armed) {
  pages_.erase(rank);
  Tell(wire::WorkerStarting{{rank, incarnation, std::move(armed)}});
}

void NodeLauncher::Impl::OnPage(Rank rank, Incarnation incarnation, const PageView& page) {
  const Duration age = std::max(SteadyClock::SteadyNow() - page.progress_at, Duration());
  pages_[rank] = {rank, incarnation, page.beat, page.gate_word, page.progress, age};
}

void NodeLauncher::Impl::OnReport(Rank rank, const StepReport& report) {
  Tell(wire::WorkerReport{rank, report.step, report.loss, {report.samples.begin(), report.samples.end()}});
}

void NodeLauncher::Impl::OnFired(const Injection& injection, TimePoint at) {
  Tell(wire::InjectionFired{ToString(injection), SteadyClock::SteadyNow() - at});
}

void NodeLauncher::Impl::OnExited(Rank rank, Incarnation incarnation, const std::string& cause, TimePoint at,
                                  std::optional<TimePoint> since) {
  TellPages();  // where it stood
  const TimePoint now = SteadyClock::SteadyNow();
  wire::WorkerExited exited{rank, incarnation, cause, std::max(now - at, Duration()), {}};
  if (since) exited.since_age = std::max(now - *since, Duration());
  Tell(exited);
  StopIfDone();
}

// ---- control socket ----------------------------------------------------------------------------------------------

void NodeLauncher::Impl::OnRequest(const std::string& request, net::ControlSocket::Respond respond) {
  using nlohmann::json;
  const json parsed = json::parse(request, nullptr, false);
  const std::string command = parsed.is_object() ? parsed.value("command", "") : "";
  if (command == "stop") {
    Tell(wire::NodeStop{});
    return respond(json{{"ok", link_ != nullptr}}.dump());
  }
  respond(json{
      {"ok", false},
      {"error", "this is node " + std::to_string(options_.node_rank) + ": ask node 0, at " + options_.controller_host}}
              .dump());
}

}  // namespace kintsugi
