#include "runtime/launcher/node/node_launcher.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/overloaded.h"
#include "runtime/launcher/leader/leader.h"
#include "runtime/launcher/leader/node_parts.h"
#include "runtime/launcher/node/agent_relay.h"
#include "runtime/launcher/node/node_control.h"
#include "runtime/launcher/node/node_elector.h"
#include "runtime/launcher/node/node_ending.h"
#include "runtime/launcher/run/certificate_watch.h"
#include "runtime/launcher/run/late_signals.h"
#include "runtime/launcher/run/stop_signals.h"
#include "runtime/net/event_loop.h"
#include "runtime/process/exit_cause.h"

namespace kintsugi {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(10);

}  // namespace

// The parts of one node's launcher, in the order in which each knows those before it; the leader's orders go to them
// from here.
class NodeLauncher::Impl final : private LineEvents, private NodeOperators {
 public:
  Impl(NodeLauncherOptions options, std::shared_ptr<LogSink> log)
      : state_(std::move(options), std::make_shared<GenerationLog>(std::move(log))),
        signals_(io_),
        poll_(io_),
        pool_(io_, reporter_, state_.log),
        relay_(io_, state_.log),
        transport_(io_, state_.log),
        to_leader_(io_, state_, *this, ending_),
        block_(state_, pool_),
        reporter_(state_, pool_, to_leader_, block_, retained_, ending_),
        control_(state_, pool_, to_leader_, block_, *this),
        splits_(io_, state_, [this](TimePoint until) { local_leader_.OnWord(until); }),
        local_leader_(io_, state_, transport_, to_leader_, {block_, retained_, history_}, splits_, ending_),
        ending_(io_, state_, pool_, to_leader_, retained_, reporter_, local_leader_),
        elector_(state_, transport_, to_leader_, block_, reporter_, splits_, local_leader_, ending_) {}

  void OnProgress(std::function<void(const RunProgress&)> listener) { local_leader_.OnProgress(std::move(listener)); }
  Result<NodeResult> Run();

 private:
  Status SetUp();
  void OnSignal(int number, int times);
  void Poll();

  // Of the leader that is followed.
  wire::NodeHello Hello() override { return reporter_.Hello(transport_.port()); }
  void OnNewTerm() override { retained_.BeginToRetell(); }
  void OnOrder(const wire::NodeOrder& order) override;
  void OnLineLost(const std::string& why) override;
  void OnWelcome(const wire::NodeWelcome& welcome);
  Status SetUpPool(const wire::NodeWelcome& welcome);
  void OnPulse(const wire::NodePulse& pulse);
  void TellNewSecret();
  void OnPlacement(const core::Placement& placement);

  // Of operators.
  void AskToStop() override { ending_.AskToStop(); }
  bool AnswerAsLeader(const std::string& request, const net::ControlSocket::Respond& respond) override;

  boost::asio::io_context io_;
  NodeState state_;
  StopSignals signals_;
  boost::asio::steady_timer poll_;
  WorkerPool pool_;
  AgentRelay relay_;
  // Of this launcher and its ranks alone: the nodes' own may change while they live.
  std::shared_ptr<const net::Secret> ranks_secret_;
  ElectionTransport transport_;
  std::unique_ptr<net::ControlSocket> socket_;
  RetainedReports retained_;
  RunHistory history_;
  LeaderConnection to_leader_;
  LocalBlock block_;
  NodeReporter reporter_;
  NodeControl control_;
  NodeSplits splits_;
  LocalLeader local_leader_;
  NodeEnding ending_;
  NodeElector elector_;
  CertificateWatch certificates_{state_.run().tls, state_.log};
};

NodeLauncher::NodeLauncher(NodeLauncherOptions options, std::shared_ptr<LogSink> log)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(log))) {}
NodeLauncher::~NodeLauncher() = default;
void NodeLauncher::OnProgress(std::function<void(const RunProgress&)> listener) {
  impl_->OnProgress(std::move(listener));
}
Result<NodeResult> NodeLauncher::Run() { return impl_->Run(); }

Status NodeLauncher::Impl::SetUp() {
  const LauncherOptions& run = state_.run();
  KINTSUGI_RETURN_IF_ERROR(net::FillRandom(&state_.launcher_id, sizeof state_.launcher_id));
  if (run.policy.world_size % run.nodes != 0)
    return {StatusCode::kInvalidArgument, "a world of " + std::to_string(run.policy.world_size) +
                                              " ranks does not spread evenly over " + std::to_string(run.nodes) +
                                              " nodes"};
  for (const Injection& injection : run.injections)
    if (block_.Has(injection.rank)) KINTSUGI_RETURN_IF_ERROR(pool_.Arm(injection).status());
  KINTSUGI_ASSIGN_OR_RETURN(ranks_secret_, net::Secret::Generate());
  if (run.secret_file) run.secret_file->Follow();
  KINTSUGI_RETURN_IF_ERROR(relay_.Listen(run.job, ranks_secret_, run.tls));
  KINTSUGI_RETURN_IF_ERROR(elector_.Listen());
  if (state_.self.founds()) state_.run_id = run.job + "/" + std::to_string(state_.launcher_id);
  if (state_.self.is_node()) state_.master_port = FreePort(run.node_address, run.ports);
  if (!run.run_directory.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(socket_, net::ControlSocket::Listen(
                                           io_, run.run_directory + "/control.sock",
                                           [this](std::string request, net::ControlSocket::Respond respond) {
                                             control_.OnRequest(request, std::move(respond));
                                           },
                                           ControlOptions()));
  }
  return Status::Ok();
}

Result<NodeResult> NodeLauncher::Impl::Run() {
  KINTSUGI_RETURN_IF_ERROR(SetUp());
  signals_.Watch(state_.run().signals, [this](int number, int times) { OnSignal(number, times); });
  if (state_.run().late_signals) state_.run().late_signals->Begin(state_.run().signals);
  elector_.BeginToSeek(SteadyClock::SteadyNow());
  Poll();
  const Status ran = net::RunGuarded(io_, *state_.log);
  if (!ran.ok()) ending_.EndNow(core::kExitFailed, "internal error, please report it: " + ran.message());
  pool_.KillAll();
  if (state_.set_up && state_.self.is_node()) pool_.Flush();
  if (!state_.failed.ok()) return state_.failed;
  if (!local_leader_.taken()) {
    KINTSUGI_CHECK(state_.ended.has_value(), "a node's launcher is over, and nobody has ended it");
    state_.ended->asked = state_.ended->asked || state_.stop_asked;
    return *state_.ended;
  }
  RunResult run = local_leader_.leader()->TakeResult();
  return NodeResult{run.exit_code, run.text, run.asked || state_.stop_asked, std::move(run)};
}

void NodeLauncher::Impl::TellNewSecret() {
  if (!state_.run().secret_file) return;
  const std::optional<Status> change = state_.run().secret_file->TakeChange();
  if (!change) return;
  if (change->ok())
    state_.log->Write(LogLevel::kInfo, LogLine("secret_renewed", {}));
  else
    state_.log->Write(
        LogLevel::kWarning,
        LogLine("secret_refused", {{"why", change->message()},
                                   {"hint", "the one before is used on: mend the file, it is looked at again"}}));
}

void NodeLauncher::Impl::OnSignal(int number, int times) {
  if (state_.run().late_signals) state_.run().late_signals->Take();
  if (times > 1) return ending_.EndNow(core::kExitFailed, "ended at once by a second " + SignalName(number));
  if (!state_.set_up) {
    const bool again = state_.run().policy.begins_again;
    return ending_.EndNow(again ? core::kExitResumable : core::kExitFailed,
                          "stopped by " + SignalName(number) + " before the run began");
  }
  // A standby is not missed, nor a node that was drained or whose ranks are not of the run: where it leads, another one does.
  const bool drained =
      state_.self.is_node() && local_leader_.leads() && !local_leader_.leader()->ended_for_all() && !state_.loops_over;
  if (!block_.takes_part() && (!local_leader_.taken() || drained)) {
    state_.log->Write(LogLevel::kInfo, LogLine("standby_left", {{"signal", SignalName(number)}}));
    if (drained) local_leader_.Leave();
    return ending_.EndNow(core::kExitSuccess, state_.self.name() + " left, by " + SignalName(number));
  }
  state_.log->Write(
      LogLevel::kWarning,
      LogLine("stop_requested",
              {{"signal", SignalName(number)},
               {"hint", to_leader_.connected()
                            ? "the whole run finishes its step and saves; a second signal ends this node"
                            : "nobody leads now: the next leader is told; a second signal ends this node"}}));
  AskToStop();
}

void NodeLauncher::Impl::Poll() {
  poll_.expires_after(kPollInterval);  // first: what throws below must not end the polling
  poll_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Poll();
  });
  pool_.Poll();
  const TimePoint now = SteadyClock::SteadyNow();
  reporter_.Poll(now);
  elector_.Poll(now);
  local_leader_.Poll();
  certificates_.Poll(now);
  TellNewSecret();
  const wire::NodePlace leader = to_leader_.connected() ? to_leader_.leads()->controller : wire::NodePlace();
  const auto node = [&] {
    return NodeStatus{.job = state_.run().job,
                      .run_id = state_.run_id,
                      .address = state_.run().node_address,
                      .version = state_.run().version,
                      .node = state_.index(),
                      .leads = local_leader_.taken(),
                      .hears_leader = to_leader_.connected(),
                      .leader = to_leader_.connected() ? state_.self.NameOf(leader.node) : "",
                      .leader_address = leader.address,
                      .leader_page = to_leader_.connected() ? state_.leader_page : "",
                      .term = std::max(to_leader_.term(), to_leader_.leads_term()),
                      .processes = static_cast<int>(pool_.Lives().size()),
                      .certificate_ends = certificates_.ends()};
  };
  Attend(state_.run().observer.get(), local_leader_.leader(), node,
         [this](const std::string& request, auto respond) { control_.OnRequest(request, std::move(respond)); });
}

bool NodeLauncher::Impl::AnswerAsLeader(const std::string& request, const net::ControlSocket::Respond& respond) {
  if (!local_leader_.taken()) return false;
  local_leader_.leader()->OnRequest(request, respond);
  return true;
}

// ---- the leader's orders -----------------------------------------------------------------------------------------

void NodeLauncher::Impl::OnOrder(const wire::NodeOrder& order) {
  std::visit(Overloaded{[&](const wire::NodeWelcome& m) { OnWelcome(m); },
                        [&](const wire::SpawnWorker& m) {
                          if (state_.set_up) pool_.Spawn(m.rank, m.incarnation);
                        },
                        [&](const wire::KillWorker& m) { pool_.Kill(m.rank, m.incarnation, m.reason); },
                        [&](const wire::ToAgentChannel& m) { relay_.Send(m.channel, m.frame); },
                        [&](const wire::CloseAgentChannel& m) { relay_.Close(m.channel); },
                        [&](const wire::NodeEnd& m) { ending_.End(m); }, [&](const wire::NodePulse& m) { OnPulse(m); },
                        [&](const wire::NodeBlocks& m) { OnPlacement(m.placement); },
                        [&](const wire::NodePlaces& m) {
                          for (const wire::NodePlace& place : m.places)
                            if (place.node != state_.index()) transport_.Know(place);
                        },
                        [&](const wire::KeepReport& m) { retained_.Keep(m.report); },
                        [&](const wire::KeepTotals& m) { retained_.OnTotals(m); },
                        [&](const wire::KeepIncidents& m) { history_.OnTold(m); },
                        [&](const wire::KeepSpans& m) { history_.OnTold(m); },
                        [&](const wire::AskNode& m) { control_.OnAsked(m); },
                        [&](const wire::AnswerNode& m) { control_.OnAnswered(m); },
                        [&](const wire::NodeNews& m) {
                          if (!local_leader_.taken())
                            state_.log->Write(m.level, m.line);  // the leader here has written it
                        },
                        [](const wire::Leads&) {}},
             order);
}

void NodeLauncher::Impl::OnLineLost(const std::string& why) {
  control_.OnLineLost(why);
  relay_.Detach();
}

void NodeLauncher::Impl::OnWelcome(const wire::NodeWelcome& welcome) {
  KINTSUGI_CHECK(to_leader_.connected() && welcome.accepted, "a launcher is welcomed that is not linked");
  state_.election.Follow(to_leader_.term().number);
  state_.newcomer.OnWelcome();
  transport_.Quiet();
  reporter_.SetBeat(welcome.beat);
  state_.policy = welcome.policy;
  state_.master_address = welcome.master_address;
  state_.master_port = welcome.master_port;
  state_.run_id = welcome.run;
  state_.leader_page = welcome.page;
  splits_.OnFollowed();
  if (!local_leader_.taken()) splits_.GiveLeaseUp();  // it is of no use to a follower
  OnPlacement(welcome.placement);
  if (state_.self.is_node() && state_.set_up) {
    pool_.TellReportsAgain();
  } else if (state_.self.is_node()) {
    if (Status ready = SetUpPool(welcome); !ready.ok()) return ending_.Fail(std::move(ready));
  }
  state_.set_up = true;
  const wire::NodePlace& controller = to_leader_.leads()->controller;
  state_.log->Write(LogLevel::kInfo,
                    LogLine("welcomed", {{"node", std::to_string(state_.index())},
                                         {"term", std::to_string(to_leader_.term().number)},
                                         {"controller", controller.address + ":" + std::to_string(controller.port)}}));
  relay_.Attach({[this](uint64_t channel, std::string_view payload) {
                   if (state_.run().policy.adopts) reporter_.NoteRegistered(payload);
                   to_leader_.Tell(wire::FromAgentChannel{channel, std::string(payload)});
                 },
                 [this](uint64_t channel) { to_leader_.Tell(wire::AgentChannelClosed{channel}); }});
  to_leader_.Tell(wire::NodeSpares{pool_.spares_waiting()});
  if (state_.stop_asked) to_leader_.Tell(wire::NodeStop{});
}

Status NodeLauncher::Impl::SetUpPool(const wire::NodeWelcome& welcome) {
  KINTSUGI_CHECK(!state_.set_up, "a pool is set up twice");
  WorkerPoolOptions pool = PoolOptionsOf(state_.run(), state_.index());
  pool.master_address = welcome.master_address;
  pool.master_port = welcome.master_port;
  pool.controller = "127.0.0.1:" + std::to_string(relay_.port());
  pool.has_ranks = block_.has_ranks();
  if (const std::optional<int> block = block_.number()) {
    pool.node_rank = *block;
    pool.first_rank = Rank(*block * state_.self.local_ranks());
  }
  return pool_.SetUp(std::move(pool), *ranks_secret_);
}

void NodeLauncher::Impl::OnPlacement(const core::Placement& placement) {
  to_leader_.NotePlacement(placement);
  block_.Take(placement);
}

void NodeLauncher::Impl::OnPulse(const wire::NodePulse& pulse) {
  state_.pulse = pulse;
  state_.pulse_at = SteadyClock::SteadyNow();
  state_.newcomer.OnPulse(pulse.started, pulse.generation);
  state_.fresh.OnPulse(pulse.generation, pulse.so_far.crew);
  state_.log->Set(pulse.generation);
  const NodeSplits::Taken taken = splits_.Take(pulse.tie);
  if (taken.changed) {
    local_leader_.OnTieRule();
    state_.log->Write(LogLevel::kInfo,
                      LogLine("even_splits", {{"node", std::to_string(state_.index())},
                                              {"decided_by", std::string(core::TieRuleName(splits_.rule()))}}));
  }
  if (taken.news) to_leader_.Tell(wire::TieRuleKept{pulse.tie.number});
}

}  // namespace kintsugi
