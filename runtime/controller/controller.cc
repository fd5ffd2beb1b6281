#include "runtime/controller/controller.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/overloaded.h"
#include "runtime/controller/incident_line.h"
#include "runtime/controller/listen_within.h"
#include "runtime/journal/recorder.h"
#include "runtime/wire/codec.h"

namespace kintsugi {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(20);
// Connections beyond one for each rank: ranks that come back before their old connection has ended, and strangers.
constexpr size_t kSpareConnections = 1024;

}  // namespace

Controller::Controller(boost::asio::io_context& io, ControllerOptions options,
                       std::shared_ptr<const net::Secret> secret, ControllerHost& host, std::shared_ptr<LogSink> log)
    : io_(io),
      options_(std::move(options)),
      secret_(std::move(secret)),
      host_(host),
      log_(std::move(log)),
      core_(options_.policy, options_.term),
      reports_(options_.policy.resume_step, options_.policy.world_size),
      refusals_(log_),
      tick_(io) {}

Controller::~Controller() { tick_.cancel(); }

Status Controller::Listen() {
  KINTSUGI_CHECK(!server_, "a controller listens twice");
  net::ServerOptions server;
  server.self = {options_.job, std::string(net::kControllerRole)};
  server.bind_address = options_.bind_address;
  server.port = options_.port;
  server.limits = options_.limits;
  server.tls = options_.tls;
  const auto ranks = static_cast<size_t>(options_.policy.world_size);
  server.connections_max = 2 * ranks + kSpareConnections;
  // All may come back at once: with fewer places the slow ones among them would be shown out like strangers.
  server.unauthenticated_max = std::max(server.unauthenticated_max, ranks);
  net::ServerHandlers handlers;
  handlers.on_open = [](const net::ConnectionPtr&) {};
  handlers.on_frame = [this](const net::ConnectionPtr& c, std::string_view payload) { OnFrame(c, payload); };
  handlers.on_close = [this](const net::ConnectionPtr& c, const Status&) {
    if (c->peer().role == net::kLauncherRole) {
      if (nodes_) nodes_->OnClose(c);
    } else {
      OnAgentClose(c);
    }
  };
  handlers.on_refused = [this](const std::string& peer, net::CloseReason, const Status& why) {
    refusals_.Write("peer_refused", peer, why.message(), SteadyClock::SteadyNow());
  };
  KINTSUGI_ASSIGN_OR_RETURN(server_, ListenWithin(io_, server, options_.ports, secret_, handlers));
  // Ranks of nodes that pass their messages through one connection need fewer; so this is no error.
  if (server_->connections_max() < static_cast<size_t>(options_.policy.world_size))
    log_->Write(LogLevel::kWarning,
                LogLine("few_descriptors", {{"connections", std::to_string(server_->connections_max())},
                                            {"ranks", std::to_string(options_.policy.world_size)},
                                            {"remedy", "raise the limit of open files (ulimit -n)"}}));
  return Status::Ok();
}

Status Controller::Record(const journal::RecorderOptions& options) {
  KINTSUGI_CHECK(!recorder_, "a run is recorded twice");
  KINTSUGI_ASSIGN_OR_RETURN(recorder_, journal::Recorder::Open(options, options_.policy, options_.term, log_));
  return Status::Ok();
}

void Controller::Start() {
  const TimePoint now = journal::Recorder::Now();
  const std::vector<core::ControllerAction> actions = core_.Start(now);
  if (recorder_) recorder_->Started(now, actions);
  for (const core::ControllerAction& action : actions) Act(action);
  Answer(store_.Advance(core_.generation()));
  ScheduleTick();
}

void Controller::ScheduleTick() {
  tick_.expires_after(kTick);
  // A tick that was already due runs after cancel: it must find out that we are gone.
  tick_.async_wait([this, alive = std::weak_ptr(alive_)](const boost::system::error_code& error) {
    if (error || alive.expired()) return;
    ScheduleTick();  // first: what throws in the tick must not be the last one
    Feed(core::Tick{});
  });
}

void Controller::Feed(const core::ControllerEvent& event) {
  const Generation before = core_.generation();
  const std::vector<core::ControllerAction> actions = StepCore(event);
  if (core_.generation() != before) Answer(store_.Advance(core_.generation()));
  for (const core::ControllerAction& action : actions) Act(action);
  AnswerWaitingJoins();
}

void Controller::AnswerWaitingJoins() {
  if (waiting_joins_.empty() || core_.taking_over() || joining_) return;
  for (const WaitingJoin& waiting : std::exchange(waiting_joins_, {}))
    if (waiting.connection->open()) OnJoin(waiting.connection, waiting.header, waiting.join);
}

std::vector<core::ControllerAction> Controller::StepCore(const core::ControllerEvent& event) {
  const TimePoint now = journal::Recorder::Now();
  try {
    std::vector<core::ControllerAction> actions = core_.Step(event, now);
    if (recorder_) recorder_->Stepped(event, now, actions);
    return actions;
  } catch (...) {
    // A failed check ends the run; what led to it can be replayed.
    if (recorder_) recorder_->Threw(event, now);
    throw;
  }
}

void Controller::TakeTotals(core::LedgerTotals folded) {
  KINTSUGI_CHECK(reports_.rows() == 0, "sums of another leader are taken after reports came in here");
  reports_ = ReportLedger(options_.policy.resume_step, options_.policy.world_size, std::move(folded));
}

void Controller::SetInjections(Rank rank, std::vector<std::string> injections) {
  if (recorder_) recorder_->SetInjections(rank, injections);
  core_.SetInjections(rank, std::move(injections));
}

void Controller::FeedBeat(Rank rank, Incarnation incarnation, uint64_t count, const Progress& place) {
  reports_.Stands(rank, Step(place.step));
  Feed(core::FromAgent{{core_.term(), core_.generation(), rank, incarnation}, core::Beat{count, place}});
}

void Controller::OnFrame(const net::ConnectionPtr& connection, std::string_view payload) {
  if (connection->peer().role != net::kLauncherRole) return OnAgentFrame(connection, payload);
  if (nodes_) return nodes_->OnFrame(connection, payload);
  RefuseFrame(connection, "a launcher, but the run has one node: --nnodes");
}

void Controller::OnAgentFrame(const net::ConnectionPtr& connection, std::string_view payload) {
  Result<wire::AgentFrame> frame = wire::DecodeFromAgent(options_.job, payload, SteadyClock::SteadyNow());
  if (!frame.ok()) return RefuseFrame(connection, frame.status().message());
  const core::Header& header = frame->header;
  const auto known = peers_.find(connection->id());
  if (auto* message = std::get_if<core::AgentMessage>(&frame->message))
    if (auto* join = std::get_if<core::JoinRequest>(message)) return OnJoin(connection, header, *join);
  // A connection speaks for the life it joined as, and for no other.
  if (known == peers_.end() || known->second.rank != header.rank || known->second.incarnation != header.incarnation)
    return RefuseFrame(connection, "speaks for rank " + header.rank.ToString() + ", incarnation " +
                                       header.incarnation.ToString() + ", and did not join as that");
  if (const auto* report = std::get_if<wire::RankReport>(&frame->message)) {
    if (!reports_.Record(header.rank, Step(report->step), report->loss, report->samples))
      RefuseFrame(connection, "reports step " + std::to_string(report->step) + ", where no other rank is near");
    return;
  }
  const auto& message = std::get<core::AgentMessage>(frame->message);
  if (const auto* beat = std::get_if<core::Beat>(&message)) reports_.Stands(header.rank, Step(beat->place.step));
  if (const auto* set = std::get_if<core::StoreSet>(&message)) return Answer(store_.Set(header, *set));
  if (const auto* get = std::get_if<core::StoreGet>(&message)) return Answer(store_.Get(header, *get));
  Feed(core::FromAgent{header, message});
}

// A rank keeps its connection: what it says next may make sense. A connection that has not joined has nothing to lose.
void Controller::RefuseFrame(const net::ConnectionPtr& connection, const std::string& why) {
  ++refused_frames_;
  refusals_.Write("frame_refused", connection->peer_address(), why, SteadyClock::SteadyNow());
  if (peers_.count(connection->id()) == 0) connection->Close();
}

std::optional<Rank> Controller::JoinedAs(const net::ConnectionPtr& connection) const {
  if (const auto known = peers_.find(connection->id()); known != peers_.end()) return known->second.rank;
  for (const WaitingJoin& waiting : waiting_joins_)
    if (waiting.connection == connection) return waiting.header.rank;
  return std::nullopt;
}

void Controller::OnJoin(const net::ConnectionPtr& connection, const core::Header& header,
                        const core::JoinRequest& join) {
  // An agent joins once on each connection: what it says of itself later changes nothing.
  if (const std::optional<Rank> before = JoinedAs(connection))
    return RefuseFrame(connection,
                       "joins twice: as rank " + before->ToString() + ", and as rank " + header.rank.ToString());
  if (header.rank.value() < 0 || header.rank.value() >= options_.policy.world_size)
    return RefuseFrame(connection, "joins as rank " + header.rank.ToString() + " in a world of " +
                                       std::to_string(options_.policy.world_size));
  KINTSUGI_CHECK(!joining_, "a join is judged within another");
  joining_ = connection;
  Feed(core::FromAgent{header, join});
  const net::ConnectionPtr unanswered = std::exchange(joining_, nullptr);
  if (!unanswered) return;
  // It waits until it is known what was taken over; or it obeys a newer controller, and is no business of ours.
  if (header.term > core_.term()) return unanswered->Close();
  waiting_joins_.push_back({unanswered, header, join});
  AnswerWaitingJoins();
}

// A refused join must not cost the living process its connection; an accepted one ends the connection before it, so
// that a process which was replaced, or forgot to close, learns of it.
void Controller::AnswerJoin(Rank rank, Incarnation incarnation, const core::Header& header,
                            const core::JoinReply& reply) {
  const net::ConnectionPtr connection = std::exchange(joining_, nullptr);
  if (!connection) return;
  const Status sent = connection->Send(wire::Encode(options_.job, header, reply));
  if (!sent.ok())
    log_->Write(LogLevel::kWarning, LogLine("send_failed", {{"rank", rank.ToString()}, {"why", sent.message()}}));
  if (!reply.accepted) return connection->Close();
  const bool first = peers_.emplace(connection->id(), Peer{rank, incarnation}).second;
  KINTSUGI_CHECK(first, "one connection is to be rank " + peers_[connection->id()].rank.ToString() + " and rank " +
                            rank.ToString());
  auto& living = connections_[rank];
  const net::ConnectionPtr before = std::exchange(living, {incarnation, connection}).second;
  if (before && before != connection) before->Close();
}

void Controller::OnAgentClose(const net::ConnectionPtr& connection) {
  const auto found = peers_.find(connection->id());
  if (found == peers_.end()) return;
  const Peer peer = found->second;
  peers_.erase(found);
  const auto current = connections_.find(peer.rank);
  if (current == connections_.end() || current->second.second != connection) return;
  const Incarnation incarnation = current->second.first;
  connections_.erase(current);
  Feed(core::ConnectionClosed{peer.rank, incarnation});
}

void Controller::SendTo(Rank rank, Incarnation incarnation, const core::Header& header,
                        const core::ControllerMessage& message) {
  if (const auto* reply = std::get_if<core::JoinReply>(&message)) return AnswerJoin(rank, incarnation, header, *reply);
  const auto found = connections_.find(rank);
  if (found == connections_.end() || found->second.first != incarnation) return;
  const net::ConnectionPtr& connection = found->second.second;
  const Status sent = connection->Send(wire::Encode(options_.job, header, message));
  if (!sent.ok())
    log_->Write(LogLevel::kWarning, LogLine("send_failed", {{"rank", rank.ToString()}, {"why", sent.message()}}));
}

// A process that nobody here can kill joins again, is refused and ends by itself.
void Controller::Disconnect(Rank rank, Incarnation incarnation) {
  const auto found = connections_.find(rank);
  if (found == connections_.end() || found->second.first != incarnation) return;
  const net::ConnectionPtr connection = found->second.second;
  connections_.erase(found);
  connection->Close();
}

void Controller::Answer(const std::vector<core::StoreTable::Answer>& answers) {
  for (const auto& answer : answers)
    SendTo(answer.rank, answer.incarnation, {core_.term(), core_.generation(), answer.rank, answer.incarnation},
           answer.reply);
}

void Controller::Tell(const core::Notice& notice) {
  const LineBudget::Answer answer = notices_[notice.rank].Ask(SteadyClock::SteadyNow());
  if (answer.left_out > 0)
    host_.OnNotice(notice.rank, std::to_string(answer.left_out) + " notices of this rank were not shown");
  if (answer.write) host_.OnNotice(notice.rank, notice.text);
}

void Controller::Act(const core::ControllerAction& action) {
  std::visit(Overloaded{
                 [&](const core::Send& a) { SendTo(a.header.rank, a.header.incarnation, a.header, a.message); },
                 [&](const core::SpawnProcess& a) { host_.Spawn(a.rank, a.incarnation); },
                 [&](const core::KillProcess& a) {
                   Disconnect(a.rank, a.incarnation);
                   host_.Kill(a.rank, a.incarnation, a.reason);
                 },
                 [&](const core::Transition& a) { host_.OnTransition(a); },
                 [&](const core::IncidentClosed& a) { host_.OnIncident(a.record); },
                 [&](const core::StepDecided& a) {
                   // Where the trainer loads a checkpoint of its own, the first one says where the run begins.
                   const bool by_trainer = options_.policy.resume_by_trainer && !options_.policy.takes_over;
                   if (by_trainer && reports_.began_after() == Step())
                     reports_ = ReportLedger(a.step, options_.policy.world_size);
                   reports_.GoBackTo(a.step);
                 },
                 [&](const core::CheckpointReady& a) {
                   log_->Write(LogLevel::kInfo,
                               LogLine("checkpoint", {{"step", a.step.ToString()}, {"directory", a.directory}}));
                   reports_.MayGoBackTo(a.step);
                   host_.OnCheckpoint({a.step, a.directory});
                 },
                 [&](const core::RunEnded& a) {
                   if (core_.snapshots().made() + core_.snapshots().abandoned() > 0)
                     log_->Write(LogLevel::kInfo,
                                 LogLine("snapshots", {{"made", std::to_string(core_.snapshots().made())},
                                                       {"abandoned", std::to_string(core_.snapshots().abandoned())},
                                                       {"newest", core_.snapshots().table().newest().ToString()}}));
                   if (!a.not_compared.empty())
                     log_->Write(LogLevel::kWarning, LogLine("final_not_compared", {{"why", a.not_compared}}));
                   host_.OnEnded(a);
                 },
                 [&](const core::Notice& a) { Tell(a); },
                 [&](const core::InexactNews& a) {
                   log_->Write(LogLevel::kWarning, LogLine("inexact", {{"rank", a.rank.ToString()}, {"text", a.text}}));
                   host_.OnInexact(a.rank, a.text);
                 },
                 [&](const core::ReplaceRefused& a) { host_.OnReplaceRefused(a); },
                 [&](const core::ScaleRefused& a) { host_.OnScaleRefused(a); },
                 [&](const core::CrewChanged& a) {
                   reports_.SetCrew(a.step, a.ranks.size(), a.left, a.came);
                   log_->Write(LogLevel::kWarning, CrewLine(a, options_.policy.world_size));
                   host_.OnCrew(a);
                 },
                 [&](const core::RoadClosed& a) { host_.OnRoadClosed(a); },
                 [&](const core::AttemptsGrow& a) { host_.OnAttempts(a); },
                 [&](const core::NodeCutOff& a) { host_.OnCutOff(a); },
                 [&](const core::HangExplained& a) { host_.OnHang(a.blame); },
                 [&](const core::AskWitness&) { host_.OnAskWitness(); },
                 [&](const core::SaveSettled& a) { host_.OnSave(a); },
                 [&](const core::SnapshotSettled& a) {
                   if (a.counts) reports_.MayGoBackTo(a.step);
                   log_->Write(LogLevel::kDebug,
                               LogLine("snapshot", {{"step", a.step.ToString()},
                                                    {"counts", a.counts ? "yes" : "no"},
                                                    {"rank", a.rank.ToString()},
                                                    {"why", a.text},
                                                    {"cost_us", std::to_string(a.cost.count() / 1000)}}));
                 },
             },
             action);
}

}  // namespace kintsugi
