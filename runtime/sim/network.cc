#include "runtime/sim/network.h"

#include <algorithm>

#include "runtime/sim/describe.h"
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
  Link* const link = p->link;
  if (!link) return;  // the controller learns what it needs when the agent joins again
  const Header header{p->core ? p->core->term() : Term{}, generation, p->rank, p->incarnation};
  Put(link, true, wire::Encode(kJob, header, message));
}

void Network::Put(Link* link, bool up, std::string frame) {
  Direction& way = link->Way(up);
  if (!way.open) return;
  if (frame.empty()) way.open = false;
  way.frames += 1;
  way.bytes += frame.size();
  if (way.frames > kQueueFrames + 1 || way.bytes > kQueueBytes) {
    world_.Log("queue full: rank " + link->rank.ToString());
    return up ? agents_.OnLost(link) : controllers_.OnLost(link, false);
  }
  way.last = std::max(way.last + 1ns, world_.Now() + Latency(link->rank));
  world_.At(way.last, [this, link, up, frame = std::move(frame)]() mutable { Arrive(link, up, std::move(frame)); });
}

void Network::Arrive(Link* link, bool up, std::string frame) {
  Direction& way = link->Way(up);
  if (IsCut(link, up)) return way.held.push_back(std::move(frame));
  Deliver(link, up, std::move(frame));
}

void Network::Deliver(Link* link, bool up, std::string frame) {
  if (relays_.Relay(link, up, frame)) return;
  Direction& way = link->Way(up);
  way.frames -= 1;
  way.bytes -= frame.size();
  if (up) {
    if (frame.empty()) return controllers_.OnLost(link, false);
    // Bytes for an end that is gone come back as a reset.
    if (!link->controller_open) return Put(link, false, "");
    return controllers_.OnFrame(link, frame);
  }
  Process* const p = link->process;
  if (frame.empty()) return world_.For(p, 0ns, [this, link] { agents_.OnLost(link); });
  world_.For(p, 0ns, [this, p, link, frame = std::move(frame)] {
    if (p->link == link) agents_.OnFrame(p, frame);
  });
}

void Network::Reset(Link* link, Duration agent_after, Duration controller_after) {
  link->up.open = link->down.open = false;
  world_.For(link->process, agent_after, [this, link] { agents_.OnLost(link); });
  world_.In(controller_after, [this, link] { controllers_.OnLost(link, false); });
}

void Network::Cut(Rank rank, bool up, bool down, Duration length) {
  Road& road = RoadOf(rank);
  road.cuts_up += up;
  road.cuts_down += down;
  world_.In(length, [this, rank, up, down] { Heal(rank, up, down); });
  // Keepalive: no acknowledgement passes a cut, in either direction.
  Process* const p = world_.processes.Newest(rank);
  Link* const link = p ? p->link : nullptr;
  if (!link) return;
  const Duration here = world_.Between(kKeepaliveLowUs, kKeepaliveHighUs),
                 there = world_.Between(kKeepaliveLowUs, kKeepaliveHighUs);
  if (here < length) world_.For(p, here, [this, link] { agents_.OnLost(link); });
  if (there < length) world_.In(there, [this, link] { controllers_.OnLost(link, false); });
}

void Network::Heal(Rank rank, bool up, bool down) {
  Road& road = RoadOf(rank);
  road.cuts_up -= up;
  road.cuts_down -= down;
  world_.Log("the road of rank " + rank.ToString() + (road.whole() ? " is whole again" : " is whole in part"));
  for (size_t i = 0; i < links_.size(); ++i) {
    Link* const link = &links_[i];
    if (link->rank != rank) continue;
    for (const bool way_up : {true, false}) {
      if ((way_up ? road.cuts_up : road.cuts_down) > 0) continue;
      for (std::string& frame : std::exchange(link->Way(way_up).held, {})) Deliver(link, way_up, std::move(frame));
    }
  }
}

bool Network::IsCut(Link* link, bool up) {
  if (!link->seat) return (up ? RoadOf(link->rank).cuts_up : RoadOf(link->rank).cuts_down) > 0;
  const int here = link->process->node, there = link->seat->node;
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
  for (size_t i = 0; i < links_.size(); ++i)
    for (const bool up : {false, true})
      for (std::string& frame : std::exchange(links_[i].Way(up).held, {})) Arrive(&links_[i], up, std::move(frame));
}

Link* Network::Open(Process* p, Seat* seat) {
  Link& link = links_.emplace_back();
  link.process = p;
  link.seat = seat;
  link.rank = p->rank;
  return &link;
}

void Network::Vanish(Link* link) {
  link->down.open = link->up.open = false;
  world_.In(world_.Between(kKeepaliveLowUs, kKeepaliveHighUs), [this, link] { controllers_.OnLost(link, false); });
}

}  // namespace kintsugi::sim
