#include "runtime/launcher/node/election_transport.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/controller/listen_within.h"

namespace kintsugi {
namespace {

constexpr Duration kVoterLimit = std::chrono::seconds(2);

}  // namespace

Status ElectionTransport::Listen(const std::string& job, std::shared_ptr<const net::Secret> secret,
                                 std::shared_ptr<const net::TlsContext> tls, const std::string& address, uint16_t port,
                                 bool exact, PortRange ports, Handlers handlers) {
  KINTSUGI_CHECK(!server_ && handlers.message && handlers.order && handlers.refused, "nobody hears what others say");
  job_ = job;
  secret_ = std::move(secret);
  tls_ = std::move(tls);
  handlers_ = std::move(handlers);
  net::ServerOptions options;
  options.self = {job, std::string(net::kLauncherRole)};
  options.bind_address = address;
  options.port = port;
  options.tls = tls_;
  net::ServerHandlers server;
  server.on_open = [](const net::ConnectionPtr&) {};
  server.on_frame = [this](const net::ConnectionPtr& c, std::string_view payload) { OnFrame(c, payload); };
  server.on_close = [](const net::ConnectionPtr&, const Status&) {};
  server.on_refused = [this](const std::string& peer, net::CloseReason, const Status& why) {
    log_->Write(LogLevel::kWarning, LogLine("peer_refused", {{"peer", peer}, {"why", why.message()}}));
  };
  Result<std::unique_ptr<net::Server>> listening = ListenWithin(io_, options, ports, secret_, server);
  if (!listening.ok() && !exact) {
    options.port = 0;
    listening = ListenWithin(io_, options, ports, secret_, server);
  }
  KINTSUGI_RETURN_IF_ERROR(listening.status());
  server_ = std::move(listening).value();
  return Status::Ok();
}

void ElectionTransport::OnFrame(const net::ConnectionPtr& connection, std::string_view payload) {
  Result<wire::NodeFrame> message = wire::DecodeFromNode(job_, payload);
  if (message.ok())
    return handlers_.message(*message, [connection](std::string frame) { (void)connection->Send(std::move(frame)); });
  Result<wire::NodeOrderFrame> order = wire::DecodeToNode(job_, payload);
  if (order.ok()) return handlers_.order(*order);
  log_->Write(LogLevel::kWarning,
              LogLine("frame_refused", {{"peer", connection->peer_address()}, {"why", order.status().message()}}));
}

void ElectionTransport::Know(const wire::NodePlace& place) {
  auto& known = places_[place.node];
  if (known.address == place.address && known.port == place.port) return;
  known = place;
  lines_.erase(place.node);
}

void ElectionTransport::Tell(int node, const std::string& frame) {
  const auto place = places_.find(node);
  if (place == places_.end()) return;
  Line& line = lines_[node];
  if (!line.client || line.failed) Open(node, place->second, &line);
  if (const net::ConnectionPtr connection = line.client ? line.client->connection() : nullptr)
    (void)connection->Send(frame);
  else
    line.waiting = frame;
}

std::string ElectionTransport::WhyNotReached(int node) const {
  const auto line = lines_.find(node);
  return line == lines_.end() ? "" : line->second.why;
}

void ElectionTransport::TellAll(const std::string& frame) {
  for (const auto& [node, place] : places_) Tell(node, frame);
}

void ElectionTransport::Open(int node, const wire::NodePlace& place, Line* line) {
  KINTSUGI_CHECK(server_ && (!line->client || line->failed), "a line is opened that there is");
  net::ClientOptions options;
  options.self = {job_, std::string(net::kLauncherRole)};
  options.tls = tls_;
  net::ClientHandlers handlers;
  handlers.on_open = [this, node](const net::ConnectionPtr& connection) {
    lines_[node].why.clear();
    if (std::string frame = std::exchange(lines_[node].waiting, {}); !frame.empty())
      (void)connection->Send(std::move(frame));
  };
  handlers.on_frame = [this](const net::ConnectionPtr& c, std::string_view payload) { OnFrame(c, payload); };
  // A line is not taken down from inside its own client: the next word opens a new one.
  handlers.on_close = [this, node](const net::ConnectionPtr&, const Status&) { lines_[node].failed = true; };
  handlers.on_failed = [this, node](const Status& why) {
    lines_[node].failed = true;
    lines_[node].why = why.message();
    const bool lasting = why.code() == StatusCode::kPermissionDenied || why.code() == StatusCode::kInvalidArgument;
    if (lasting) handlers_.refused(node, why);
  };
  line->failed = false;
  line->client.reset();
  Result<std::unique_ptr<net::Client>> client = net::Client::Create(io_, options, secret_, std::move(handlers));
  if (!client.ok()) return log_->Write(LogLevel::kWarning, LogLine("no_line", {{"why", client.status().message()}}));
  line->client = std::move(client).value();
  (void)line->client->Connect(place.address, place.port, SteadyClock::SteadyNow() + kVoterLimit);
}

}  // namespace kintsugi
