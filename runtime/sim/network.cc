// The network: connections that carry frames in order, roads that are slow or cut, ends that do not know of each other.
//
// A cut holds what arrives at it, in order; a connection that stays cut is given up by both ends' keepalive, each in
// its own time. Frames are counted against the transport's own bounds: a sender whose queue is full closes the
// connection.
#include "runtime/sim/cluster.h"
#include "runtime/sim/describe.h"
#include "runtime/wire/codec.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

// The bounds and the keepalive of runtime/net.
constexpr size_t kQueueFrames = 1024;
constexpr size_t kQueueBytes = 8u << 20;
constexpr int64_t kKeepaliveLowUs = 2'000'000, kKeepaliveHighUs = 4'000'000;
// Of runtime/agent: without a controller for this long a process ends by itself.
constexpr Duration kControllerLoss = 10s;

}  // namespace

Duration Cluster::Latency(Rank rank) {
  const Duration base = world_.random.Chance(0.05) ? world_.Between(1000, 20000) : world_.Between(50, 800);
  const Duration extra = RoadOf(rank).extra;
  if (extra.count() == 0) return base;
  return base + extra / 2 + Duration(static_cast<int64_t>(world_.random.Below(static_cast<uint64_t>(extra.count()))));
}

void Cluster::SendUp(Process* p, Generation generation, const AgentMessage& message) {
  Link* const link = p->link;
  if (!link) return;  // the controller learns what it needs when the agent joins again
  const Header header{p->core ? p->core->term() : Term{}, generation, p->rank, p->incarnation};
  Put(link, true, wire::Encode(kJob, header, message));
}

// An empty frame is the end of the connection.
void Cluster::Put(Link* link, bool up, std::string frame) {
  Direction& way = up ? link->up : link->down;
  if (!way.open) return;
  if (frame.empty()) way.open = false;
  way.frames += 1;
  way.bytes += frame.size();
  if (way.frames > kQueueFrames + 1 || way.bytes > kQueueBytes) {
    world_.Log("queue full: rank " + link->rank.ToString());
    return up ? LoseAtAgent(link) : CloseAtController(link, false);
  }
  way.last = std::max(way.last + 1ns, world_.Now() + Latency(link->rank));
  world_.At(way.last, [this, link, up, frame = std::move(frame)]() mutable { Arrive(link, up, std::move(frame)); });
}

void Cluster::Arrive(Link* link, bool up, std::string frame) {
  Direction& way = up ? link->up : link->down;
  if (IsCut(link, up)) return way.held.push_back(std::move(frame));
  Deliver(link, up, std::move(frame));
}

void Cluster::Deliver(Link* link, bool up, std::string frame) {
  if (Relay(link, up, frame)) return;
  Direction& way = up ? link->up : link->down;
  way.frames -= 1;
  way.bytes -= frame.size();
  if (up) {
    if (frame.empty()) return CloseAtController(link, false);
    // Bytes for an end that is gone come back as a reset.
    if (!link->controller_open) return Put(link, false, "");
    return OnUp(link, frame);
  }
  Process* const p = link->process;
  if (frame.empty()) return world_.For(p, 0ns, [this, link] { LoseAtAgent(link); });
  world_.For(p, 0ns, [this, p, link, frame = std::move(frame)] {
    if (p->link == link) OnDown(p, frame);
  });
}

void Cluster::Connect(Process* p) {
  if (!p->alone_since) p->alone_since = world_.Now();
  world_.For(p, world_.Between(100, 3000), [this, p] { TryConnect(p); });
}

void Cluster::TryConnect(Process* p) {
  if (p->link) return;
  Seat* seat = nullptr;
  if (!launchers_.empty() && !(seat = SeatFor(p))) {  // its launcher keeps it waiting until there is a controller
    p->alone_since = world_.Now();
    return world_.For(p, world_.Between(5000, 50000), [this, p] { TryConnect(p); });
  }
  const Duration limit = p->core ? kControllerLoss : world_.plan.policy.join_timeout;
  if (world_.Now() - *p->alone_since > limit) return Die(p, "exited with code 1: no controller");
  if (world_.seat().down || !RoadOf(p->rank).whole())  // a handshake needs both ways
    return world_.For(p, world_.Between(20000, 300000), [this, p] { TryConnect(p); });
  p->alone_since.reset();
  all_links_.push_back(std::make_unique<Link>());
  p->link = all_links_.back().get();
  p->link->process = p;
  p->link->seat = seat;
  p->link->rank = p->rank;
  SendUp(p, p->core ? p->core->generation() : Generation(),
         JoinRequest{p->pid, "host" + p->rank.ToString(), world_.plan.watched,
                     p->core ? p->core->standing() : core::Standing::kNew, p->core.has_value()});
}

// The agent's end is gone, by whatever it took for the other's word.
void Cluster::LoseAtAgent(Link* link) {
  link->down.open = link->up.open = false;
  Process* const p = link->process;
  if (p->link != link) return;
  p->link = nullptr;
  if (p->alive) Connect(p);
}

// Both ends learn of it, each in its time; what is under way is lost.
void Cluster::Reset(Link* link, Duration agent_after, Duration controller_after) {
  link->up.open = link->down.open = false;
  world_.For(link->process, agent_after, [this, link] { LoseAtAgent(link); });
  world_.In(controller_after, [this, link] { CloseAtController(link, false); });
}

void Cluster::Cut(Rank rank, bool up, bool down, Duration length) {
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
  if (here < length) world_.For(p, here, [this, link] { LoseAtAgent(link); });
  if (there < length) world_.In(there, [this, link] { CloseAtController(link, false); });
}

void Cluster::Heal(Rank rank, bool up, bool down) {
  Road& road = RoadOf(rank);
  road.cuts_up -= up;
  road.cuts_down -= down;
  world_.Log("the road of rank " + rank.ToString() + (road.whole() ? " is whole again" : " is whole in part"));
  for (size_t i = 0; i < all_links_.size(); ++i) {
    Link* const link = all_links_[i].get();
    if (link->rank != rank) continue;
    for (const bool way_up : {true, false}) {
      if ((way_up ? road.cuts_up : road.cuts_down) > 0) continue;
      for (std::string& frame : std::exchange((way_up ? link->up : link->down).held, {}))
        Deliver(link, way_up, std::move(frame));
    }
  }
}

}  // namespace kintsugi::sim
