#include "runtime/controller/node_hub.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/overloaded.h"
#include "runtime/controller/alike.h"
#include "runtime/wire/node_codec.h"

namespace kintsugi {
namespace {

// Ids of channels and of the server's connections must differ.
constexpr uint64_t kChannelIdBit = uint64_t{1} << 63;

}  // namespace

// One agent of a node, as the Controller sees it.
class NodeHub::Channel final : public net::Connection {
 public:
  Channel(NodeHub& hub, int node, uint64_t number, uint64_t id, net::PeerIdentity peer)
      : hub_(&hub),
        node_(node),
        number_(number),
        id_(id),
        peer_(std::move(peer)),
        address_("node " + std::to_string(node) + ", channel " + std::to_string(number)) {}

  Status Send(std::string payload) override {
    if (!open_) return {StatusCode::kCommFailure, address_ + " is closed"};
    ++stats_.frames_sent;
    stats_.bytes_sent += payload.size();
    if (!hub_->Send(node_, wire::ToAgentChannel{number_, std::move(payload)}))
      return {StatusCode::kCommFailure, address_ + ": the node is not connected"};
    return Status::Ok();
  }
  // The node closes it, and says so.
  void Close() override {
    if (std::exchange(open_, false)) hub_->Send(node_, wire::CloseAgentChannel{number_});
  }
  void Abort() override { Close(); }
  bool open() const override { return open_; }
  uint64_t id() const override { return id_; }
  const net::PeerIdentity& peer() const override { return peer_; }
  const std::string& peer_address() const override { return address_; }
  net::ConnectionStats stats() const override { return stats_; }

  void CountReceived(size_t bytes) {
    ++stats_.frames_received;
    stats_.bytes_received += bytes;
  }
  // The hub or its connection is gone.
  void Lose() { open_ = false; }

 private:
  NodeHub* hub_;  // outlives every open channel
  const int node_;
  const uint64_t number_;
  const uint64_t id_;
  const net::PeerIdentity peer_;
  const std::string address_;
  net::ConnectionStats stats_;
  bool open_ = true;
};

NodeHub::NodeHub(NodeHubOptions options, Controller& controller, NodeEvents& events, std::shared_ptr<LogSink> log)
    : options_(std::move(options)),
      controller_(controller),
      events_(events),
      log_(std::move(log)),
      refusals_(log_),
      connections_(static_cast<size_t>(options_.nodes + options_.controllers + core::kSpareNodesMax)),
      slots_(connections_.size()) {
  KINTSUGI_CHECK(options_.nodes > 0 && options_.local_ranks > 0 && options_.controllers >= 0, "nodes without ranks");
}

NodeHub::~NodeHub() {
  for (NodeConnection& connection : connections_)
    for (auto& [number, channel] : connection.channels) channel->Lose();
}

size_t NodeHub::IndexOf(int node) const {
  KINTSUGI_CHECK(node >= 0 && static_cast<size_t>(node) < connections_.size(),
                 "there is no place for a node " + std::to_string(node));
  return static_cast<size_t>(node);
}

bool NodeHub::Send(int node, const wire::NodeOrder& order) {
  const net::ConnectionPtr& connection = ConnectionOf(node).connection;
  if (!connection) return false;
  const auto* end = std::get_if<wire::NodeEnd>(&order);
  ended_ = ended_ || (end && !end->awaits_ends);
  const Status sent = connection->Send(wire::Encode(options_.job, options_.term, order));
  if (!sent.ok())
    log_->Write(LogLevel::kWarning, LogLine("send_failed", {{"node", std::to_string(node)}, {"why", sent.message()}}));
  return sent.ok();
}

void NodeHub::OnFrame(const net::ConnectionPtr& connection, std::string_view payload) {
  Result<wire::NodeFrame> frame = wire::DecodeFromNode(options_.job, payload);
  if (!frame.ok()) return Refuse(connection, frame.status().message());
  if (const auto* hello = std::get_if<wire::NodeHello>(&frame->message)) return OnHello(connection, *hello);
  const int node = connection->mark();
  if (node < 0) return Refuse(connection, "speaks before its hello was accepted");
  SlotOf(node).incumbent.heard_at = SteadyClock::SteadyNow();
  if (SlotOf(node).claimant.connection) RefuseClaimant(node);
  std::visit(Overloaded{[&](const wire::FromAgentChannel& m) { OnAgentFrame(node, m.channel, m.frame); },
                        [&](const wire::AgentChannelClosed& m) { OnAgentClosed(node, m.channel); },
                        [&](const auto&) { events_.OnNodeMessage(node, frame->message); }},
             frame->message);
}

std::string NodeHub::WhyRefused(const wire::NodeHello& hello) const {
  if (hello.nodes != options_.nodes)
    return "node " + std::to_string(hello.node_rank) + " says --nnodes " + std::to_string(hello.nodes) +
           ", the controller " + std::to_string(options_.nodes);
  if (hello.local_ranks != options_.local_ranks)
    return "node " + std::to_string(hello.node_rank) + " says --nproc " + std::to_string(hello.local_ranks) +
           ", the controller " + std::to_string(options_.local_ranks);
  if (hello.controllers != options_.controllers)
    return "node " + std::to_string(hello.node_rank) + " knows " + std::to_string(hello.controllers) +
           " controllers, the one that leads " + std::to_string(options_.controllers);
  if (hello.witness != options_.witness)
    return "node " + std::to_string(hello.node_rank) + (hello.witness ? " has" : " lacks") +
           " --witness: give it to every node, or to none";
  return WhyUnlike("node " + std::to_string(hello.node_rank), hello.alike, "the one that leads", options_.alike);
}

// What each node may have as it wants is told all the same: it may not be what somebody wanted.
void NodeHub::TellDifferences(const wire::NodeHello& hello) {
  if (!compared_.insert(hello.launcher).second) return;
  std::vector<Unlike> unlike = FindUnlike(hello.own, options_.own);
  if (!hello.version.empty() && hello.version != options_.version)
    unlike.push_back({"version", hello.version, options_.version});
  for (const Unlike& one : unlike)
    log_->Write(LogLevel::kWarning, LogLine("node_differs", {{"node", std::to_string(hello.node_rank)},
                                                             {"host", hello.host},
                                                             {"option", one.option},
                                                             {"has", one.theirs},
                                                             {"leader_has", one.ours}}));
}

void NodeHub::OnHello(const net::ConnectionPtr& connection, const wire::NodeHello& hello) {
  // Who it is, a connection says once. A node that was taken in is not shown out for it: its ranks train.
  const auto again = [&](int node) {
    return "says hello twice: as node " + std::to_string(node) + ", and as node " + std::to_string(hello.node_rank);
  };
  if (connection->mark() >= 0) return Refuse(connection, again(connection->mark()));
  if (const std::optional<int> claimed = ClaimOf(connection)) return ShowOut(connection, again(*claimed));
  const std::string why = WhyRefused(hello);
  if (!why.empty()) return ShowOut(connection, why);
  Slot& slot = SlotOf(hello.node_rank);
  const std::string name = "node " + std::to_string(hello.node_rank);
  if (slot.replaced.count(hello.launcher))
    return ShowOut(connection, "another launcher took the place of " + name + " while this one was silent");
  const bool lives = slot.incumbent.launcher != 0 && slot.incumbent.launcher != hello.launcher &&
                     SteadyClock::SteadyNow() - slot.incumbent.heard_at <= options_.silence;
  if (!lives) return TakeIn(connection, hello);
  // A launcher that was started anew says the same as one that was started twice. Whether the one before it lives, its
  // next word tells, or that it says none.
  if (slot.claimant.connection) return ShowOut(connection, name + " is claimed by several launchers at once");
  slot.claimant = {connection, hello};
}

// The newest connection of a node's launcher speaks for it: the one before it is lost, and that may not be known yet.
void NodeHub::TakeIn(const net::ConnectionPtr& connection, const wire::NodeHello& hello) {
  const int node = hello.node_rank;
  KINTSUGI_CHECK(connection->mark() < 0, "one connection is to be node " + std::to_string(connection->mark()) +
                                             " and node " + std::to_string(node));
  Slot& slot = SlotOf(node);
  if (slot.incumbent.launcher != 0 && slot.incumbent.launcher != hello.launcher)
    slot.replaced.insert(slot.incumbent.launcher);
  slot.incumbent = {hello.launcher, hello.address, SteadyClock::SteadyNow()};
  if (const net::ConnectionPtr old = ConnectionOf(node).connection) {
    OnClose(old);
    old->Abort();
  }
  ConnectionOf(node) = {connection, hello.address, {}};
  connection->set_mark(node);
  ++connected_;
  log_->Write(LogLevel::kInfo, LogLine("node_joined", {{"node", std::to_string(node)},
                                                       {"address", hello.address},
                                                       {"peer", connection->peer_address()},
                                                       {"host", hello.host},
                                                       {"version", hello.version},
                                                       {"processes", std::to_string(hello.lives.size())}}));
  TellDifferences(hello);
  Send(node, wire::NodeWelcome{true, "", options_.master_address, options_.master_port, options_.beat, options_.policy,
                               options_.run, placement_, options_.page});
  events_.OnNodeJoined(node, hello);
}

void NodeHub::Poll(TimePoint now) {
  for (Slot& slot : slots_) {
    if (!slot.claimant.connection || now - slot.incumbent.heard_at <= options_.silence) continue;
    const Claimant claimant = std::exchange(slot.claimant, {});
    log_->Write(LogLevel::kWarning, LogLine("node_replaced", {{"node", std::to_string(claimant.hello.node_rank)},
                                                              {"silent", slot.incumbent.address},
                                                              {"by", claimant.hello.address}}));
    TakeIn(claimant.connection, claimant.hello);
  }
}

void NodeHub::RefuseClaimant(int node) {
  const Claimant claimant = std::exchange(SlotOf(node).claimant, {});
  const std::string name = "node " + std::to_string(node);
  ShowOut(claimant.connection, name + " is here already: its launcher on " + SlotOf(node).incumbent.address +
                                   " lives. Give every launcher a --node-rank of its own, or end that one first");
}

std::optional<int> NodeHub::ClaimOf(const net::ConnectionPtr& connection) const {
  const auto claimed = std::find_if(slots_.begin(), slots_.end(),
                                    [&](const Slot& slot) { return slot.claimant.connection == connection; });
  if (claimed == slots_.end()) return std::nullopt;
  return static_cast<int>(claimed - slots_.begin());
}

void NodeHub::DropClaim(const net::ConnectionPtr& connection) {
  if (const std::optional<int> node = ClaimOf(connection)) SlotOf(*node).claimant = {};
}

void NodeHub::ShowOut(const net::ConnectionPtr& connection, const std::string& why) {
  KINTSUGI_CHECK(connection->mark() < 0,
                 "node " + std::to_string(connection->mark()) + " was taken in, and is shown out");
  Count(connection, why);
  DropClaim(connection);
  (void)connection->Send(
      wire::Encode(options_.job, options_.term, wire::NodeOrder(wire::NodeWelcome{.accepted = false, .text = why})));
  connection->Close();
}

void NodeHub::OnAgentFrame(int node, uint64_t number, const std::string& frame) {
  NodeConnection& through = ConnectionOf(node);
  KINTSUGI_CHECK(through.connection != nullptr, "an agent speaks through a node that is not connected");
  auto& channel = through.channels[number];
  if (!channel) {
    net::PeerIdentity peer = through.connection->peer();
    peer.role = net::kAgentRole;
    channel = std::make_shared<Channel>(*this, node, number, kChannelIdBit | ++channels_made_, std::move(peer));
  }
  channel->CountReceived(frame.size());
  // It may close itself, and its connection with it.
  const std::shared_ptr<Channel> kept = channel;
  if (kept->open()) controller_.OnAgentFrame(kept, frame);
}

void NodeHub::OnAgentClosed(int node, uint64_t number) {
  auto& channels = ConnectionOf(node).channels;
  const auto found = channels.find(number);
  if (found == channels.end()) return;
  const std::shared_ptr<Channel> channel = found->second;
  channels.erase(found);
  channel->Lose();
  controller_.OnAgentClose(channel);
}

void NodeHub::OnClose(const net::ConnectionPtr& connection) {
  const int node = connection->mark();
  if (node < 0) return DropClaim(connection);
  KINTSUGI_CHECK(connected_ > 0 && ConnectionOf(node).connection == connection,
                 "the connection of node " + std::to_string(node) + " is lost, and was not its own");
  connection->set_mark(-1);
  --connected_;
  const NodeConnection lost = std::exchange(ConnectionOf(node), {});
  log_->Write(LogLevel::kInfo, LogLine(ended_ ? "node_left" : "node_unlinked",
                                       {{"node", std::to_string(node)}, {"address", lost.address}}));
  for (const auto& [number, channel] : lost.channels) channel->Lose();
  for (const auto& [number, channel] : lost.channels) controller_.OnAgentClose(channel);
  events_.OnNodeLost(node);
}

void NodeHub::Refuse(const net::ConnectionPtr& connection, const std::string& why) {
  Count(connection, why);
  if (connection->mark() >= 0) return;
  DropClaim(connection);
  connection->Close();
}

void NodeHub::Count(const net::ConnectionPtr& connection, const std::string& why) {
  ++refused_frames_;
  refusals_.Write("node_refused", connection->peer_address(), why, SteadyClock::SteadyNow());
}

}  // namespace kintsugi
