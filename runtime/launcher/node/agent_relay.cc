#include "runtime/launcher/node/agent_relay.h"

#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {

Status AgentRelay::Listen(const std::string& job, std::shared_ptr<const net::Secret> secret,
                          std::shared_ptr<const net::TlsContext> tls) {
  KINTSUGI_CHECK(!server_, "a relay listens twice");
  net::ServerOptions server;
  server.self = {job, std::string(net::kLauncherRole)};
  server.tls = std::move(tls);
  net::ServerHandlers handlers;
  handlers.on_open = [this](const net::ConnectionPtr& c) { (upstream_ ? channels_ : stale_)[c->id()] = c; };
  handlers.on_frame = [this](const net::ConnectionPtr& c, std::string_view payload) { OnFrame(c, payload); };
  handlers.on_close = [this](const net::ConnectionPtr& c, const Status&) { OnClose(c); };
  handlers.on_refused = [this](const std::string& peer, net::CloseReason, const Status& why) {
    log_->Write(LogLevel::kWarning, LogLine("peer_refused", {{"peer", peer}, {"why", why.message()}}));
  };
  KINTSUGI_ASSIGN_OR_RETURN(server_, net::Server::Listen(io_, server, std::move(secret), std::move(handlers)));
  return Status::Ok();
}

void AgentRelay::Attach(Upstream upstream) {
  KINTSUGI_CHECK(upstream.frame && upstream.closed, "frames are passed on to nobody");
  stale_.merge(std::exchange(channels_, {}));
  for (const auto& [id, connection] : std::exchange(stale_, {})) connection->Close();
  upstream_ = std::move(upstream);
}

void AgentRelay::OnFrame(const net::ConnectionPtr& connection, std::string_view payload) {
  if (upstream_ && channels_.count(connection->id())) upstream_->frame(connection->id(), payload);
}

void AgentRelay::OnClose(const net::ConnectionPtr& connection) {
  stale_.erase(connection->id());
  if (channels_.erase(connection->id()) > 0 && upstream_) upstream_->closed(connection->id());
}

void AgentRelay::Send(uint64_t channel, std::string_view frame) {
  const auto found = channels_.find(channel);
  if (found == channels_.end()) return;
  const Status sent = found->second->Send(std::string(frame));
  if (!sent.ok()) log_->Write(LogLevel::kWarning, LogLine("send_failed", {{"why", sent.message()}}));
}

void AgentRelay::Close(uint64_t channel) {
  const auto found = channels_.find(channel);
  if (found != channels_.end()) found->second->Close();
}

}  // namespace kintsugi
