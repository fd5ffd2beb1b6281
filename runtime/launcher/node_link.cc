// The link of a node to whoever leads.
#include "runtime/base/overloaded.h"
#include "runtime/core/policy.h"
#include "runtime/launcher/node_impl.h"
#include "runtime/launcher/node_parts.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/node_codec.h"

namespace kintsugi {
namespace {

constexpr Duration kConnectLimit = std::chrono::seconds(5);

}  // namespace

void NodeLauncher::Impl::Link(Term term, const wire::Leads& leads) {
  leads_ = leads;
  leads_term_ = term;
  if (link_) Unlink("another one leads");
  net::ClientOptions options;
  options.self = {options_.run.job, std::string(net::kLauncherRole)};
  options.limits = LinkLimits(LocalRanks());
  options.tls = options_.run.tls;
  net::ClientHandlers handlers;
  handlers.on_open = [this](const net::ConnectionPtr& connection) { OnOpen(connection); };
  handlers.on_frame = [this](const net::ConnectionPtr& connection, std::string_view payload) {
    OnFrame(connection, payload);
  };
  handlers.on_close = [this](const net::ConnectionPtr&, const Status& why) { OnClose(why); };
  handlers.on_failed = [this](const Status& why) { OnUnreachable(why); };
  client_.reset();
  Result<std::unique_ptr<net::Client>> client =
      net::Client::Create(io_, options, options_.run.secret, std::move(handlers));
  if (!client.ok()) return Fail(client.status());
  client_ = std::move(client).value();
  Connect();
}

void NodeLauncher::Impl::Connect() {
  const Status begun =
      client_->Connect(leads_->controller.address, leads_->controller.port, SteadyClock::SteadyNow() + kConnectLimit);
  if (!begun.ok()) OnUnreachable(begun);
}

wire::NodeHello NodeLauncher::Impl::Hello() const {
  wire::NodeHello hello{.node_rank = self(),
                        .nodes = options_.run.nodes,
                        .local_ranks = LocalRanks(),
                        .address = options_.run.node_address,
                        .lives = {},
                        .port = electorate_.port(),
                        .witness = witness_ != nullptr,
                        .controllers = options_.run.controllers,
                        .master_port = master_port_,
                        .launcher = launcher_id_};
  for (const WorkerPool::Life& life : pool_.Lives()) hello.lives.push_back({life.rank, life.incarnation, life.armed});
  for (const auto& [rank, held] : pool_.Held()) hello.held.push_back(HeldOf(rank, held));
  return hello;
}

void NodeLauncher::Impl::OnOpen(const net::ConnectionPtr& connection) {
  const Status sent = connection->Send(wire::Encode(options_.run.job, term_, wire::NodeMessage(Hello())));
  if (!sent.ok()) connection->Abort();
}

void NodeLauncher::Impl::OnFrame(const net::ConnectionPtr& connection, std::string_view payload) {
  Result<wire::NodeOrderFrame> frame = wire::DecodeToNode(options_.run.job, payload);
  // Promised to a newer one, it obeys no older.
  if (!frame.ok() || !core::MayObey(election_, term_, frame->term, SteadyClock::SteadyNow())) {
    const std::string why =
        frame.ok() ? "term " + std::to_string(frame->term.number) + " is over" : frame.status().message();
    return log_->Write(LogLevel::kWarning, LogLine("frame_refused", {{"why", why}}));
  }
  // Its welcome was refused: it says one to each connection.
  if (!link_ && !std::holds_alternative<wire::NodeWelcome>(frame->order)) return connection->Abort();
  heard_at_ = SteadyClock::SteadyNow();
  const bool news = term_ < frame->term;
  term_ = frame->term;
  if (news) retold_ = {0, Rank()};
  std::visit(
      Overloaded{[&](const wire::NodeWelcome& m) { OnWelcome(m); },
                 [&](const wire::SpawnWorker& m) {
                   if (set_up_) pool_.Spawn(m.rank, m.incarnation);
                 },
                 [&](const wire::KillWorker& m) { pool_.Kill(m.rank, m.incarnation, m.reason); },
                 [&](const wire::ToAgentChannel& m) { relay_.Send(m.channel, m.frame); },
                 [&](const wire::CloseAgentChannel& m) { relay_.Close(m.channel); },
                 [&](const wire::NodeEnd& m) { OnEnd(m); }, [&](const wire::NodePulse& m) { OnPulse(m); },
                 [&](const wire::NodeBlocks& m) { OnPlacement(m.placement); },
                 [&](const wire::NodePlaces& m) {
                   for (const wire::NodePlace& place : m.places)
                     if (place.node != self()) electorate_.Know(place);
                 },
                 [&](const wire::KeepReport& m) { Keep(m.report); }, [&](const wire::KeepTotals& m) { OnTotals(m); },
                 [&](const wire::AskNode& m) { OnAskedHere(m); }, [&](const wire::AnswerNode& m) { OnAnswered(m); },
                 [&](const wire::NodeNews& m) {
                   if (!leader_) log_->Write(m.level, m.line);  // the leader here has written it
                 },
                 [](const wire::Leads&) {}},
      frame->order);
}

void NodeLauncher::Impl::OnWelcome(const wire::NodeWelcome& welcome) {
  if (!welcome.accepted)
    return Fail({StatusCode::kInvalidArgument, "the controller refuses this node: " + welcome.text});
  link_ = client_->connection();
  election_.Follow(term_.number);
  electorate_.Quiet();
  beat_ = welcome.beat;
  policy_ = welcome.policy;
  master_address_ = welcome.master_address;
  master_port_ = welcome.master_port;
  run_id_ = welcome.run;
  tie_order_ = 0;
  if (!leader_) lease_wanted_ = false;  // it is of no use to a follower
  OnPlacement(welcome.placement);
  if (!is_node()) {
    set_up_ = true;
  } else if (set_up_) {
    pool_.TellReportsAgain();
  } else {
    WorkerPoolOptions pool = PoolOptionsOf(options_.run, self());
    pool.master_address = welcome.master_address;
    pool.master_port = welcome.master_port;
    pool.controller = "127.0.0.1:" + std::to_string(relay_.port());
    pool.has_ranks = has_ranks();
    if (block_) pool.node_rank = *block_, pool.first_rank = Rank(*block_ * LocalRanks());
    if (Status ready = pool_.SetUp(std::move(pool), *options_.run.secret); !ready.ok()) return Fail(std::move(ready));
    set_up_ = true;
  }
  log_->Write(LogLevel::kInfo, LogLine("welcomed", {{"node", std::to_string(self())},
                                                    {"term", std::to_string(term_.number)},
                                                    {"controller", leads_->controller.address + ":" +
                                                                       std::to_string(leads_->controller.port)}}));
  relay_.Attach({[this](uint64_t channel, std::string_view payload) {
                   if (options_.run.policy.adopts) NoteRegistered(payload);
                   Tell(wire::FromAgentChannel{channel, std::string(payload)});
                 },
                 [this](uint64_t channel) { Tell(wire::AgentChannelClosed{channel}); }});
  Tell(wire::NodeSpares{pool_.spares_waiting()});
  if (stop_asked_) Tell(wire::NodeStop{});
}

// What others know of it. Whose ranks are started here changes only by the word of a leader.
bool NodeLauncher::Impl::Learn(const core::Placement& placement) {
  if (!placement_.Learn(placement)) return false;
  election_.SetPlacement(placement_);
  return true;
}

void NodeLauncher::Impl::OnPlacement(const core::Placement& placement) {
  leads_->placement = placement;
  Learn(placement);
  if (placement.version() != placement_.version() || !is_node()) return;  // a newer one is known here
  const std::optional<int> before = std::exchange(block_, placement_.BlockOf(self(), options_.run.nodes));
  election_.SetHasRanks(has_ranks());
  if (block_ == before) return;
  const std::string ranks =
      !block_ ? "none"
              : std::to_string(*block_ * LocalRanks()) + " to " + std::to_string((*block_ + 1) * LocalRanks() - 1);
  log_->Write(LogLevel::kWarning, LogLine(block_ ? "takes_over" : "is_spare", {{"node", name()}, {"ranks", ranks}}));
  if (!set_up_) return;
  if (before) pool_.GiveBlockUp("another node has taken the rank over");
  if (block_) pool_.TakeBlock(*block_);
}

// By our own decision: no handler of the client's runs.
void NodeLauncher::Impl::Unlink(const std::string& why) {
  if (client_) client_->Stop();
  link_.reset();
  ForgetAsked("the controller was lost: " + why);
  relay_.Detach();
  log_->Write(LogLevel::kWarning, LogLine("controller_lost", {{"node", std::to_string(self())}, {"why", why}}));
  if (set_up_) election_.Lose(SteadyClock::SteadyNow());
}

void NodeLauncher::Impl::OnClose(const Status& why) {
  link_.reset();
  ForgetAsked(ended_ ? "the run has ended: " + ended_->text : "the controller was lost: " + why.message());
  relay_.Detach();
  if (ended_) {
    if (!pool_.running() && (!leader_ || leader_done_)) io_.stop();
    return;
  }
  log_->Write(LogLevel::kWarning,
              LogLine("controller_lost", {{"node", std::to_string(self())},
                                          {"why", why.message()},
                                          {"waits", "for it, or for a majority to elect another"}}));
  if (set_up_) election_.Lose(SteadyClock::SteadyNow());
  Connect();
}

void NodeLauncher::Impl::OnUnreachable(const Status& why) {
  if (ended_) return (!leader_ || leader_done_) ? io_.stop() : void();
  if (why.code() == StatusCode::kPermissionDenied || why.code() == StatusCode::kInvalidArgument)
    return Fail(why.Annotate(name() + " found no controller"));
  last_refusal_ = why.message();
  if (!set_up_) return leads_.reset();  // ask again who leads
  Connect();
}

void NodeLauncher::Impl::OnPulse(const wire::NodePulse& pulse) {
  pulse_ = pulse;
  log_->Set(pulse.generation);
  if (!witness_ || pulse.tie.number <= tie_order_) return;
  tie_order_ = pulse.tie.number;
  if (pulse.tie.rule != tie_rule_) {
    tie_rule_ = pulse.tie.rule;
    election_.SetTieRule(tie_rule_);
    if (leader_) leader_->TakeTieRule(tie_rule_);
    log_->Write(LogLevel::kInfo, LogLine("even_splits", {{"node", std::to_string(self())},
                                                         {"decided_by", std::string(core::TieRuleName(tie_rule_))}}));
  }
  Tell(wire::TieRuleKept{tie_order_});
}

void NodeLauncher::Impl::OnEnd(const wire::NodeEnd& end) {
  ended_ = NodeResult{end.exit_code, end.text, end.asked, std::nullopt};
  pool_.Leave();
  pool_.Poll();
  RetellReports(reports_.size());
  leave_.expires_after(LeaveLimit(stop_asked_, options_.run.policy.grace));
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

// What the processes here registered is kept beside their memory: a leader to come may find nobody else who knows.
void NodeLauncher::Impl::NoteRegistered(std::string_view payload) {
  const Result<wire::AgentFrame> frame = wire::DecodeFromAgent(options_.run.job, payload);
  const auto* message = frame.ok() ? std::get_if<core::AgentMessage>(&frame->message) : nullptr;
  if (message && std::holds_alternative<core::Ready>(*message)) registered_[frame->header.rank] = payload;
}

wire::NodeHeld NodeLauncher::Impl::HeldOf(Rank rank, const std::optional<core::HeldState>& held) const {
  const auto registered = registered_.find(rank);
  return {rank, held, held && registered != registered_.end() ? registered->second : std::string()};
}

// For leaders to come: the present one has it.
void NodeLauncher::Impl::Keep(wire::WorkerReport report) {
  if (report.step <= totals_.step) return;
  const std::pair key(report.step, report.rank);
  reports_.insert_or_assign(key, std::move(report));
}

// In the leader's sums. Its curve comes in pieces; a piece that does not fit is of a leader before it, and all comes
// soon.
void NodeLauncher::Impl::OnTotals(const wire::KeepTotals& m) {
  if (m.curve_from > totals_.curve.size() || (m.curve_from > 0 && m.totals.curve_every != totals_.curve_every)) return;
  std::vector<double> curve = std::move(totals_.curve);
  curve.resize(m.curve_from);
  curve.insert(curve.end(), m.totals.curve.begin(), m.totals.curve.end());
  totals_ = m.totals;
  totals_.curve = std::move(curve);
  reports_.erase(reports_.begin(), reports_.upper_bound({totals_.step, Rank(INT32_MAX)}));
}

void NodeLauncher::Impl::TellPages(bool always) {
  wire::Pages told;
  for (const auto& [rank, page] : std::exchange(pages_, {})) told.pages.push_back(page);
  if (always || !told.pages.empty()) Tell(told);
}

// A leader that took over has none of them. A few at a time: the link has a bound.
void NodeLauncher::Impl::RetellReports(size_t at_most) {
  auto next = reports_.upper_bound(retold_);
  for (; link_ && at_most > 0 && next != reports_.end(); ++next, --at_most) {
    Tell(next->second);
    retold_ = next->first;
  }
  if (link_ && next == reports_.end()) retold_ = {UINT64_MAX, Rank()};  // what comes later is told when it comes
}

}  // namespace kintsugi
