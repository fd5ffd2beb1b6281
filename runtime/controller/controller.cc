#include "runtime/controller/controller.h"

#include "runtime/wire/codec.h"

namespace kintsugi {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(20);

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

}  // namespace

Controller::Controller(boost::asio::io_context& io, ControllerOptions options, std::shared_ptr<const net::Secret> secret,
                       ControllerHost& host, std::shared_ptr<LogSink> log)
    : io_(io),
      options_(std::move(options)),
      secret_(std::move(secret)),
      host_(host),
      log_(std::move(log)),
      core_(options_.policy, options_.term),
      tick_(io) {}

Controller::~Controller() { tick_.cancel(); }

Status Controller::Listen() {
  net::ServerOptions server;
  server.self = {options_.job, "controller"};
  server.bind_address = options_.bind_address;
  server.port = options_.port;
  net::ServerHandlers handlers;
  handlers.on_open = [](const net::ConnectionPtr&) {};
  handlers.on_frame = [this](const net::ConnectionPtr& c, std::string_view payload) { OnFrame(c, payload); };
  handlers.on_close = [this](const net::ConnectionPtr& c, const Status&) { OnClose(c); };
  handlers.on_refused = [this](const std::string& peer, net::CloseReason, const Status& why) {
    log_->Write(LogLevel::kWarning, LogLine("peer_refused", {{"peer", peer}, {"why", why.message()}}));
  };
  KINTSUGI_ASSIGN_OR_RETURN(server_, net::Server::Listen(io_, server, secret_, std::move(handlers)));
  return Status::Ok();
}

void Controller::Start() {
  for (const core::ControllerAction& action : core_.Start(SteadyClock::SteadyNow())) Act(action);
  Answer(store_.Advance(core_.generation()));
  ScheduleTick();
}

void Controller::ScheduleTick() {
  tick_.expires_after(kTick);
  tick_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    Feed(core::Tick{});
    ScheduleTick();
  });
}

void Controller::Feed(const core::ControllerEvent& event) {
  const Generation before = core_.generation();
  const std::vector<core::ControllerAction> actions = core_.Step(event, SteadyClock::SteadyNow());
  if (core_.generation() != before) Answer(store_.Advance(core_.generation()));
  for (const core::ControllerAction& action : actions) Act(action);
}

void Controller::FeedBeat(Rank rank, Incarnation incarnation, uint64_t count, Step step) {
  Feed(core::FromAgent{{core_.term(), core_.generation(), rank, incarnation}, core::Beat{count, step}});
}

void Controller::OnFrame(const net::ConnectionPtr& connection, std::string_view payload) {
  Result<wire::AgentFrame> frame = wire::DecodeFromAgent(options_.job, payload);
  if (!frame.ok()) {
    ++refused_frames_;
    log_->Write(LogLevel::kWarning,
                LogLine("frame_refused", {{"peer", connection->peer_address()}, {"why", frame.status().message()}}));
    return;
  }
  const core::Header& header = frame->header;
  const auto known = peers_.find(connection->id());
  if (auto* message = std::get_if<core::AgentMessage>(&frame->message);
      message && std::holds_alternative<core::JoinRequest>(*message)) {
    if (header.rank.value() < 0 || header.rank.value() >= options_.policy.world_size) {
      ++refused_frames_;
      return connection->Close();
    }
    // The connection speaks for the rank only once the core has accepted it: see SendTo.
    joining_ = connection;
    Feed(core::FromAgent{header, *message});
    joining_.reset();
    return;
  }
  if (known == peers_.end() || known->second.rank != header.rank) {
    // A connection speaks for the rank it joined as, and for no other.
    ++refused_frames_;
    log_->Write(LogLevel::kWarning, LogLine("frame_refused", {{"peer", connection->peer_address()},
                                                              {"why", "speaks for rank " + header.rank.ToString()}}));
    return;
  }
  if (const auto* report = std::get_if<wire::RankReport>(&frame->message))
    return reports_.Record(header.rank, Step(report->step), report->loss, report->samples);
  const auto& message = std::get<core::AgentMessage>(frame->message);
  if (const auto* set = std::get_if<core::StoreSet>(&message)) return Answer(store_.Set(header, *set));
  if (const auto* get = std::get_if<core::StoreGet>(&message)) return Answer(store_.Get(header, *get));
  Feed(core::FromAgent{header, message});
}

void Controller::OnClose(const net::ConnectionPtr& connection) {
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
  if (const auto* reply = std::get_if<core::JoinReply>(&message); reply && joining_) {
    const net::ConnectionPtr connection = joining_;
    (void)connection->Send(wire::Encode(options_.job, header, message));
    if (!reply->accepted) return connection->Close();
    peers_[connection->id()] = {rank, incarnation};
    connections_[rank] = {incarnation, connection};
    return;
  }
  const auto found = connections_.find(rank);
  if (found == connections_.end() || found->second.first != incarnation) return;
  const Status sent = found->second.second->Send(wire::Encode(options_.job, header, message));
  if (!sent.ok())
    log_->Write(LogLevel::kWarning, LogLine("send_failed", {{"rank", rank.ToString()}, {"why", sent.message()}}));
}

void Controller::Answer(const std::vector<core::StoreTable::Answer>& answers) {
  for (const auto& answer : answers)
    SendTo(answer.rank, answer.incarnation, {core_.term(), core_.generation(), answer.rank, answer.incarnation},
           answer.reply);
}

void Controller::Act(const core::ControllerAction& action) {
  std::visit(Overloaded{
                 [&](const core::Send& a) { SendTo(a.header.rank, a.header.incarnation, a.header, a.message); },
                 [&](const core::SpawnProcess& a) { host_.Spawn(a.rank, a.incarnation); },
                 [&](const core::KillProcess& a) { host_.Kill(a.rank, a.incarnation, a.reason); },
                 [&](const core::Transition& a) { host_.OnTransition(a); },
                 [&](const core::IncidentClosed& a) { host_.OnIncident(a.record); },
                 [&](const core::StepDecided&) {},
                 [&](const core::CheckpointReady& a) {
                   log_->Write(LogLevel::kInfo, LogLine("checkpoint", {{"step", a.step.ToString()}, {"directory", a.directory}}));
                 },
                 [&](const core::RunEnded& a) { host_.OnEnded(a); },
                 [&](const core::Notice& a) { host_.OnNotice(a.rank, a.text); },
             },
             action);
}

}  // namespace kintsugi
