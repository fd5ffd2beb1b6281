#include "runtime/launcher/node/leader_connection.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/core/allegiance.h"
#include "runtime/launcher/leader/node_parts.h"
#include "runtime/wire/node_codec.h"

namespace kintsugi {
namespace {

constexpr Duration kConnectLimit = std::chrono::seconds(5);

}  // namespace

void LeaderConnection::Follow(Term term, const wire::Leads& leads) {
  leads_ = leads;
  leads_term_ = term;
  if (connection_) Drop("another one leads");
  net::ClientOptions options;
  options.self = {state_.run().job, std::string(net::kLauncherRole)};
  options.limits = NodeLimits(state_.self.local_ranks());
  options.tls = state_.run().tls;
  net::ClientHandlers handlers;
  handlers.on_open = [this](const net::ConnectionPtr& connection) { OnOpen(connection); };
  handlers.on_frame = [this](const net::ConnectionPtr& connection, std::string_view payload) {
    OnFrame(connection, payload);
  };
  handlers.on_close = [this](const net::ConnectionPtr&, const Status& why) { OnClose(why); };
  handlers.on_failed = [this](const Status& why) { OnUnreachable(why); };
  client_.reset();
  Result<std::unique_ptr<net::Client>> client =
      net::Client::Create(io_, options, state_.run().secret, std::move(handlers));
  if (!client.ok()) return ends_.Fail(client.status());
  client_ = std::move(client).value();
  Connect();
}

void LeaderConnection::Connect() {
  KINTSUGI_CHECK(client_ && leads_, "nobody leads to whom one could connect");
  const Status begun =
      client_->Connect(leads_->controller.address, leads_->controller.port, SteadyClock::SteadyNow() + kConnectLimit);
  if (!begun.ok()) OnUnreachable(begun);
}

void LeaderConnection::OnOpen(const net::ConnectionPtr& connection) {
  const Status sent = connection->Send(wire::Encode(state_.run().job, term_, wire::NodeMessage(above_.Hello())));
  if (!sent.ok()) connection->Abort();
}

void LeaderConnection::OnFrame(const net::ConnectionPtr& connection, std::string_view payload) {
  const Result<wire::NodeOrderFrame> frame = wire::DecodeToNode(state_.run().job, payload);
  // Promised to a newer one, it obeys no older.
  if (!frame.ok() || !core::MayObey(state_.election, term_, frame->term, SteadyClock::SteadyNow())) {
    const std::string why =
        frame.ok() ? "term " + std::to_string(frame->term.number) + " is over" : frame.status().message();
    return state_.log->Write(LogLevel::kWarning, LogLine("frame_refused", {{"why", why}}));
  }
  const auto* welcome = std::get_if<wire::NodeWelcome>(&frame->order);
  // Its welcome was refused: it says one to each connection.
  if (!connection_ && !welcome) return connection->Abort();
  heard_at_ = SteadyClock::SteadyNow();
  const bool news = term_ < frame->term;
  term_ = frame->term;
  if (news) above_.OnNewTerm();
  if (welcome && !welcome->accepted)
    return ends_.Fail({StatusCode::kInvalidArgument, "the controller refuses this node: " + welcome->text});
  if (welcome) connection_ = client_->connection();
  above_.OnOrder(frame->order);
}

bool LeaderConnection::Tell(const wire::NodeMessage& message) {
  if (!connection_) return false;
  const Status sent = connection_->Send(wire::Encode(state_.run().job, term_, message));
  if (!sent.ok()) state_.log->Write(LogLevel::kWarning, LogLine("send_failed", {{"why", sent.message()}}));
  return true;
}

std::string LeaderConnection::LeadsFrame() const {
  KINTSUGI_CHECK(leads_.has_value(), "who leads is told, and nobody does");
  return wire::Encode(state_.run().job, leads_term_, wire::NodeOrder(*leads_));
}

void LeaderConnection::NotePlacement(const core::Placement& placement) {
  KINTSUGI_CHECK(leads_.has_value(), "a leader says where the ranks live, and nobody leads");
  leads_->placement = placement;
}

void LeaderConnection::Close() {
  KINTSUGI_CHECK(connection_ != nullptr, "a line is closed that there is not");
  connection_->Close();
}

// No handler of the client's runs.
void LeaderConnection::Drop(const std::string& why) {
  if (client_) client_->Stop();
  connection_.reset();
  above_.OnLineLost("the controller was lost: " + why);
  state_.log->Write(LogLevel::kWarning,
                    LogLine("controller_lost", {{"node", std::to_string(state_.index())}, {"why", why}}));
  LoseLeader();
}

// Once all loops are over nobody else could take the run over: it is this leader that hears how the processes leave.
void LeaderConnection::LoseLeader() {
  if (state_.set_up && !state_.loops_over) state_.election.Lose(SteadyClock::SteadyNow());
}

void LeaderConnection::OnClose(const Status& why) {
  connection_.reset();
  above_.OnLineLost(state_.ended ? "the run has ended: " + state_.ended->text
                                 : "the controller was lost: " + why.message());
  if (state_.ended) return ends_.OnDisconnected();
  state_.log->Write(LogLevel::kWarning,
                    LogLine("controller_lost", {{"node", std::to_string(state_.index())},
                                                {"why", why.message()},
                                                {"waits", "for it, or for a majority to elect another"}}));
  LoseLeader();
  Connect();
}

void LeaderConnection::OnUnreachable(const Status& why) {
  if (state_.ended) return ends_.OnUnreachable();
  const bool refused = why.code() == StatusCode::kPermissionDenied || why.code() == StatusCode::kInvalidArgument;
  if (refused && !state_.set_up) return ends_.Fail(why.Annotate(state_.self.name() + " found no controller"));
  // Once it was welcomed it holds state, and a leader that refuses it is one that is lost.
  if (refused && why.message() != last_refusal_)
    state_.log->Write(LogLevel::kError,
                      LogLine("leader_refuses", {{"node", std::to_string(state_.index())}, {"why", why.message()}}));
  last_refusal_ = why.message();
  if (!state_.set_up) return leads_.reset();  // ask again who leads
  Connect();
}

}  // namespace kintsugi
