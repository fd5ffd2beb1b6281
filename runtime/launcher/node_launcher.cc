#include "runtime/launcher/node_launcher.h"

#include "runtime/launcher/node_impl.h"
#include "runtime/launcher/node_parts.h"
#include "runtime/net/event_loop.h"
#include "runtime/process/exit_cause.h"

namespace kintsugi {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(10);
constexpr Duration kLastTurn = std::chrono::milliseconds(20);
constexpr size_t kRetoldAtOnce = 200;

// Controllers stand for election before nodes do: a node that leads takes its host's processors from its ranks.
int Turn(const NodeLauncherOptions& options) {
  return options.controller >= 0 ? options.controller
                                 : options.node_rank + static_cast<int>(options.controllers.size());
}

}  // namespace

NodeLauncher::NodeLauncher(NodeLauncherOptions options, std::shared_ptr<LogSink> log)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(log))) {}
NodeLauncher::~NodeLauncher() = default;
void NodeLauncher::OnProgress(std::function<void(const RunProgress&)> listener) {
  impl_->listener_ = std::move(listener);
}
Result<NodeResult> NodeLauncher::Run() { return impl_->Run(); }

NodeLauncher::Impl::Impl(NodeLauncherOptions options, std::shared_ptr<LogSink> log)
    : options_(std::move(options)),
      log_(std::make_shared<GenerationLog>(std::move(log))),
      signals_(io_),
      poll_(io_),
      leave_(io_),
      stop_end_(io_),
      pool_(io_, *this, log_),
      relay_(io_, log_),
      electorate_(io_, log_),
      election_({self(), options_.run.policy.world_size, options_.controller_wait, Turn(options_),
                 options_.controller < 0, LocalRanks()}) {
  if (is_node()) block_ = placement_.BlockOf(self(), options_.run.nodes);
  election_.SetHasRanks(has_ranks());
  if (options_.run.witness.empty()) return;
  witness_ = std::make_unique<Witness>(io_, options_.run.witness, log_, [this](TimePoint until) { OnWord(until); });
  tie_rule_ = core::TieRule::kNobody;  // until the leader says otherwise
  election_.SetTieRule(tie_rule_);
}

Status NodeLauncher::Impl::SetUp() {
  const LauncherOptions& run = options_.run;
  KINTSUGI_RETURN_IF_ERROR(net::FillRandom(&launcher_id_, sizeof launcher_id_));
  if (run.policy.world_size % run.nodes != 0)
    return {StatusCode::kInvalidArgument, "a world of " + std::to_string(run.policy.world_size) +
                                              " ranks does not spread evenly over " + std::to_string(run.nodes) +
                                              " nodes"};
  for (const Injection& injection : run.injections)
    if (Has(injection.rank)) KINTSUGI_RETURN_IF_ERROR(pool_.Arm(injection).status());
  KINTSUGI_RETURN_IF_ERROR(relay_.Listen(run.job, run.secret, run.tls));
  Electorate::Handlers handlers;
  handlers.message = [this](const wire::NodeFrame& frame, const Electorate::Reply& reply) {
    if (const auto* hello = std::get_if<wire::NodeHello>(&frame.message)) return OnAsked(*hello, reply);
    if (const auto* request = std::get_if<wire::VoteRequest>(&frame.message)) return OnVoteRequest(*request, reply);
    const auto* vote = std::get_if<wire::Vote>(&frame.message);
    if (vote) Learn(vote->placement);
    if (vote && vote->granted) Do(election_.OnVote(vote->node, vote->term, {vote->live, vote->ended}));
  };
  handlers.order = [this](const wire::NodeOrderFrame& frame) { OnOrder(frame); };
  handlers.refused = [this](int, const Status& why) {
    if (!set_up_) Fail(why.Annotate(name() + " found no controller"));
  };
  std::string host = run.node_address;
  int port = 0;
  if (!is_node()) {
    host = options_.controllers[static_cast<size_t>(options_.controller)].host;
    port = options_.controllers[static_cast<size_t>(options_.controller)].port;
  } else if (options_.controllers.empty()) {
    // Its own port, so that launchers on one host do not take that of the rendezvous, and the same one when it starts
    // anew.
    if (self() == 0) host = options_.rendezvous_host;
    port = options_.rendezvous_port + self();
  }
  const bool exact = !is_node() || founds();
  KINTSUGI_RETURN_IF_ERROR(electorate_.Listen(run.job, run.secret, run.tls, host,
                                              static_cast<uint16_t>(port <= 65535 ? port : 0), exact, run.ports,
                                              std::move(handlers)));
  for (size_t k = 0; k < options_.controllers.size(); ++k)
    if (static_cast<int>(k) != options_.controller)
      electorate_.Know({run.nodes + static_cast<int>(k), options_.controllers[k].host, options_.controllers[k].port});
  if (options_.controllers.empty() && self() != 0)
    electorate_.Know({0, options_.rendezvous_host, options_.rendezvous_port});
  if (founds()) run_id_ = run.job + "/" + std::to_string(launcher_id_);
  if (is_node()) master_port_ = FreePort(run.node_address, run.ports);
  if (!run.run_directory.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(control_, net::ControlSocket::Listen(
                                            io_, run.run_directory + "/control.sock",
                                            [this](std::string request, net::ControlSocket::Respond respond) {
                                              OnRequest(request, std::move(respond));
                                            },
                                            ControlOptions()));
  }
  return Status::Ok();
}

Result<NodeResult> NodeLauncher::Impl::Run() {
  KINTSUGI_RETURN_IF_ERROR(SetUp());
  signals_.Watch([this](int number, int times) { OnSignal(number, times); });
  seek_until_ = SteadyClock::SteadyNow() + options_.run.policy.join_timeout;
  Poll();
  const Status ran = net::RunGuarded(io_, *log_);
  if (!ran.ok()) EndNow(core::kExitFailed, "internal error, please report it: " + ran.message());
  pool_.KillAll();
  if (set_up_ && is_node()) pool_.Flush();
  if (!failed_.ok()) return failed_;
  if (!leader_) {
    ended_->asked = ended_->asked || stop_asked_;
    return *ended_;
  }
  RunResult run = leader_->TakeResult();
  return NodeResult{run.exit_code, run.text, run.asked || stop_asked_, std::move(run)};
}

void NodeLauncher::Impl::Fail(Status why) {
  failed_ = std::move(why);
  EndNow(core::kExitStartup, failed_.message());
}

void NodeLauncher::Impl::OnSignal(int number, int times) {
  if (times > 1 || !link_) return EndNow(core::kExitFailed, "ended at once by " + SignalName(number));
  // A standby is not missed.
  if (!has_ranks() && !leader_) {
    log_->Write(LogLevel::kInfo, LogLine("standby_left", {{"signal", SignalName(number)}}));
    return EndNow(core::kExitSuccess, name() + " left, by " + SignalName(number));
  }
  log_->Write(LogLevel::kWarning,
              LogLine("stop_requested",
                      {{"signal", SignalName(number)},
                       {"hint", "the whole run finishes its step and saves; a second signal ends this node"}}));
  AskToStop();
}

// The leader bounds what it can reach. It may itself be out of reach by then: this node's grace is its own.
void NodeLauncher::Impl::AskToStop() {
  Tell(wire::NodeStop{});
  if (stop_asked_) return;
  stop_asked_ = SteadyClock::SteadyNow();
  stop_end_.expires_after(options_.run.policy.grace);
  stop_end_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !ended_) EndNow(core::kExitFailed, "the grace period was over, and the run had not ended");
  });
}

void NodeLauncher::Impl::Poll() {
  poll_.expires_after(kPollInterval);  // first: what throws below must not end the polling
  poll_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Poll();
  });
  pool_.Poll();
  const TimePoint now = SteadyClock::SteadyNow();
  if (now - told_pages_ >= beat_) {
    told_pages_ = now;
    TellPages(true);
  }
  RetellReports(kRetoldAtOnce);
  Seek();
  Elect();
  if (witness_) PollWitness();
  if (leader_ && !leader_done_) leader_->Poll();
  const auto node = [this] {
    return NodeSight{.job = options_.run.job,
                     .node = self(),
                     .leads = leader_ != nullptr,
                     .hears_leader = link_ != nullptr,
                     .term = std::max(term_, leads_term_),
                     .processes = static_cast<int>(pool_.Lives().size())};
  };
  Attend(options_.run.observer.get(), leader_.get(), node,
         [this](const std::string& request, auto respond) { OnRequest(request, std::move(respond)); });
}

void NodeLauncher::Impl::StopIfDone() {
  if (!ended_ || pool_.running()) return;
  leave_.expires_after(kLastTurn);
  leave_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    TellPages();
    // What is queued is sent; OnClose ends, or the leader once all have left.
    if (link_) return link_->Close();
    if (!leader_ || leader_done_) io_.stop();
  });
}

void NodeLauncher::Impl::EndNow(int exit_code, const std::string& why) {
  if (!ended_) ended_ = NodeResult{exit_code, why, false, std::nullopt};
  pool_.Leave();
  pool_.KillAll();
  if (leader_ && !leader_done_) leader_->EndNow(why);
  io_.stop();
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
  wire::WorkerReport told{rank, report.step, report.loss, SumOf(report.samples)};
  Tell(told);
  Keep(std::move(told));
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

}  // namespace kintsugi
