#include "runtime/sim/network.h"

#include <algorithm>

#include "runtime/wire/codec.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

// The bounds and the keepalive of runtime/net.
constexpr size_t kQueueFrames = 1024;
constexpr size_t kQueueBytes = 8u << 20;
constexpr int64_t kKeepaliveLowUs = 2'000'000, kKeepaliveHighUs = 4'000'000;

}  // namespace

Duration Network::Latency(Rank rank) {
  const Duration base = world_.random.Chance(0.05) ? world_.Between(1000, 20000) : world_.Between(50, 800);
  const Duration extra = RoadOf(rank).extra;
  if (extra.count() == 0) return base;
  return base + extra / 2 + Duration(static_cast<int64_t>(world_.random.Below(static_cast<uint64_t>(extra.count()))));
}

void Network::SendUp(Process* p, Generation generation, const AgentMessage& message) {
  Connection* const connection = p->connection;
  if (!connection) return;  // the controller learns what it needs when the agent joins again
  const Header header{p->core ? p->core->term() : Term{}, generation, p->rank, p->incarnation};
  Put(connection, true, wire::Encode(kJob, header, message));
}

void Network::Put(Connection* connection, bool up, std::string frame) {
  Direction& way = connection->Way(up);
  if (!way.open) return;
  if (frame.empty()) way.open = false;
  way.frames += 1;
  way.bytes += frame.size();
  if (way.frames > kQueueFrames + 1 || way.bytes > kQueueBytes) {
    world_.Log("queue full: rank " + connection->rank.ToString());
    return up ? agents_.OnLost(connection) : controllers_.OnLost(connection, false);
  }
  way.last = std::max(way.last + 1ns, world_.Now() + Latency(connection->rank));
  world_.At(way.last,
            [this, connection, up, frame = std::move(frame)]() mutable { Arrive(connection, up, std::move(frame)); });
}

void Network::Arrive(Connection* connection, bool up, std::string frame) {
  Direction& way = connection->Way(up);
  if (IsCut(connection, up)) return way.held.push_back(std::move(frame));
  Deliver(connection, up, std::move(frame));
}

void Network::Deliver(Connection* connection, bool up, std::string frame) {
  if (relays_.Relay(connection, up, frame)) return;
  Direction& way = connection->Way(up);
  way.frames -= 1;
  way.bytes -= frame.size();
  if (up) {
    if (frame.empty()) return controllers_.OnLost(connection, false);
    // Bytes for an end that is gone come back as a reset.
    if (!connection->controller_open) return Put(connection, false, "");
    return controllers_.OnFrame(connection, frame);
  }
  Process* const p = connection->process;
  if (frame.empty()) return world_.For(p, 0ns, [this, connection] { agents_.OnLost(connection); });
  world_.For(p, 0ns, [this, p, connection, frame = std::move(frame)] {
    if (p->connection == connection) agents_.OnFrame(p, frame);
  });
}

void Network::Reset(Connection* connection, Duration agent_after, Duration controller_after) {
  connection->up.open = connection->down.open = false;
  world_.For(connection->process, agent_after, [this, connection] { agents_.OnLost(connection); });
  world_.In(controller_after, [this, connection] { controllers_.OnLost(connection, false); });
}

void Network::Cut(Rank rank, bool up, bool down, Duration length) {
  Road& road = RoadOf(rank);
  road.cuts_up += up;
  road.cuts_down += down;
  world_.In(length, [this, rank, up, down] { Heal(rank, up, down); });
  // Keepalive: no acknowledgement passes a cut, in either direction.
  Process* const p = world_.processes.Newest(rank);
  Connection* const connection = p ? p->connection : nullptr;
  if (!connection) return;
  const Duration here = world_.Between(kKeepaliveLowUs, kKeepaliveHighUs),
                 there = world_.Between(kKeepaliveLowUs, kKeepaliveHighUs);
  if (here < length) world_.For(p, here, [this, connection] { agents_.OnLost(connection); });
  if (there < length) world_.In(there, [this, connection] { controllers_.OnLost(connection, false); });
}

void Network::Heal(Rank rank, bool up, bool down) {
  Road& road = RoadOf(rank);
  road.cuts_up -= up;
  road.cuts_down -= down;
  world_.Log("the road of rank " + rank.ToString() + (road.whole() ? " is whole again" : " is whole in part"));
  for (size_t i = 0; i < connections_.size(); ++i) {
    Connection* const connection = &connections_[i];
    if (connection->rank != rank) continue;
    for (const bool way_up : {true, false}) {
      if ((way_up ? road.cuts_up : road.cuts_down) > 0) continue;
      for (std::string& frame : std::exchange(connection->Way(way_up).held, {}))
        Deliver(connection, way_up, std::move(frame));
    }
  }
}

bool Network::IsCut(Connection* connection, bool up) {
  if (!connection->seat) return (up ? RoadOf(connection->rank).cuts_up : RoadOf(connection->rank).cuts_down) > 0;
  const int here = connection->process->node, there = connection->seat->node;
  return CutBetween(up ? here : there, up ? there : here);
}

bool Network::CutBetween(int from, int to) const {
  const auto found = node_cuts_.find({from, to});
  return found != node_cuts_.end() && found->second > 0;
}

void Network::CutNodes(const NodeRoads& roads) {
  for (const auto& road : roads) ++node_cuts_[road];
}

void Network::MendNodes(const NodeRoads& roads) {
  for (const auto& road : roads) --node_cuts_[road];
}

void Network::DeliverHeld() {
  for (size_t i = 0; i < connections_.size(); ++i)
    for (const bool up : {false, true})
      for (std::string& frame : std::exchange(connections_[i].Way(up).held, {}))
        Arrive(&connections_[i], up, std::move(frame));
}

Connection* Network::Open(Process* p, Seat* seat) {
  Connection& connection = connections_.emplace_back();
  connection.process = p;
  connection.seat = seat;
  connection.rank = p->rank;
  return &connection;
}

void Network::Vanish(Connection* connection) {
  connection->down.open = connection->up.open = false;
  world_.In(world_.Between(kKeepaliveLowUs, kKeepaliveHighUs),
            [this, connection] { controllers_.OnLost(connection, false); });
}

}  // namespace kintsugi::sim
