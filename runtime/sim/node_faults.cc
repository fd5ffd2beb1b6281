#include "runtime/sim/node_faults.h"

#include <algorithm>

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

// Longer than any word between launchers takes where no road is cut.
constexpr Duration kOnItsWay = 500ms;

}  // namespace

bool NodeFaults::Strike(const PlannedFault& fault) {
  if (!world_.plan.elections) return false;
  Launcher& leading = launchers_.Of(world_.seat().node);
  Launcher& of_rank = launchers_.Of(world_.plan.NodeOf(fault.rank));
  switch (fault.type) {
    case FaultType::kControllerKilled:
      return LoseLauncher(leading, false, fault.lasting);
    case FaultType::kStandbyKilled:
      return &of_rank != &leading && LoseLauncher(of_rank, false, fault.lasting);
    case FaultType::kNodeLost:
      return LoseLauncher(fault.count == 1 ? leading : of_rank, true, fault.lasting);
    case FaultType::kSpareNodeLost:
      return world_.plan.spare_nodes > 0 &&
             LoseLauncher(launchers_.Of(world_.plan.nodes + fault.rank % world_.plan.spare_nodes), fault.count == 1,
                          fault.lasting);
    case FaultType::kControllerFrozen:
      return Freeze(leading, fault.lasting ? world_.Between(1'200'000, 6'000'000) : world_.Between(20'000, 900'000));
    case FaultType::kNodesCut:
    case FaultType::kNodesCutOneWay:
    case FaultType::kNodesCutInHalves:
      return Cut(fault);
    case FaultType::kRoadClosed:
      return CloseRoads(fault);
    case FaultType::kSave:
      if (world_.seat().alive) launchers_.AtSeat(world_.seat(), [this] { controllers_.Feed(OperatorSave{}); });
      return world_.seat().alive;
    case FaultType::kReplace:
      if (!world_.seat().alive || world_.seat().ended) return false;
      launchers_.AtSeat(world_.seat(), [this, rank = Rank(fault.rank)] {
        if (world_.core().WhyNotReplaced(rank).empty()) world_.losses.Ask(rank.value());
        controllers_.Feed(core::OperatorReplace{rank});
      });
      return true;
    case FaultType::kScale:
      return Scale(fault.count, 40);
    case FaultType::kDrain:
      return Drain(fault.rank);
    case FaultType::kStop:
      return AskToStop(of_rank);
    default:
      return false;
  }
}

// A signal, or an operator's command there. One that no run has taken in yet ends by itself.
bool NodeFaults::AskToStop(Launcher& l) {
  if (!l.alive || l.ended || l.term == Term()) return false;
  world_.course.stop_asked = true;
  launchers_.At(l, {}, [this, &l] {
    followers_.AskToStop(l);
    launchers_.At(l, world_.plan.policy.grace, [this, &l] {
      if (l.ended) return;
      world_.Log("the grace period of " + NodeName(l.node) + " is over");
      CheckStopIsHeard(l);
      LoseLauncher(l, false, false);
    });
  });
  return true;
}

// By the leader that it follows, wherever that could hear it.
void NodeFaults::CheckStopIsHeard(const Launcher& l) {
  if (!l.connected || world_.Now() - l.welcomed_at < kOnItsWay || !l.leads->alive || l.leads->stop_heard) return;
  const Launcher& host = launchers_.Of(l.leads->node);
  if (!host.alive || host.frozen || network_.CutBetween(l.node, host.node)) return;
  world_.Break(Promise::kProgress, NodeName(l.node) + " was asked to save and leave, and its leader never heard of it");
}

void NodeFaults::CloseLater(NodeLine* line, Duration keepalive) {
  world_.In(keepalive, [this, line] { launchers_.AtSeat(*line->seat, [this, line] { seats_.CloseLine(line); }); });
}

// Asked again while it is refused, for a second or so.
bool NodeFaults::Scale(int ranks, int again) {
  const auto later = [this, ranks, again] {
    world_.In(world_.Between(10'000, 50'000), [this, ranks, again] { Scale(ranks, again - 1); });
  };
  if (world_.seat().ended || again == 0) return false;
  if (!world_.seat().alive) return later(), true;
  launchers_.AtSeat(world_.seat(), [this, ranks, later] {
    if (!world_.core().WhyNotScaled(ranks).empty()) return later();
    controllers_.Feed(core::OperatorScale{ranks});
  });
  return true;
}

// The launcher's process and all of its ranks end; or the host is gone, and nobody tells.
// Also where it will be refused: an order in the midst of an incident is to change nothing.
bool NodeFaults::Drain(int rank) {
  if (!world_.seat().alive || world_.seat().ended) return false;
  const int ranks = world_.plan.policy.world_size / world_.plan.nodes;
  const Rank first(rank / ranks * ranks);
  launchers_.AtSeat(world_.seat(), [this, first, ranks] {
    if (world_.core().WhyNotDrained(first, ranks).empty()) {
      ++world_.course.drains;
      world_.course.drained.emplace(first, world_.SeatedNodeOf(first));
      for (int r = first.value(); r < first.value() + ranks; ++r) world_.losses.Ask(r);
    }
    controllers_.Feed(core::OperatorDrain{first, ranks});
  });
  return true;
}

bool NodeFaults::LoseLauncher(Launcher& l, bool host_gone, bool comes_back) {
  if (!l.alive || l.ended) return false;
  world_.losses.AllLate();
  l.alive = false;
  l.frozen = false;
  l.deferred.clear();
  if (NodeLine* line = std::exchange(l.line, nullptr)) {
    line->open_here = false;
    if (!host_gone)
      lines_.Put(line, true, "");
    else
      CloseLater(line, world_.Between(2'000'000, 4'000'000));
  }
  l.connected = l.dials = false;
  if (Seat* seat = std::exchange(l.seat, nullptr)) {
    seat->alive = false;
    for (const auto& [node, line] : seat->lines) {
      line->open_there = false;
      if (!host_gone) lines_.Put(line, false, "");
    }
  }
  ranks_.EndAll(l);
  if (comes_back) world_.In(world_.Between(300'000, 3'000'000), [this, &l] { Restart(l); });
  return true;
}

// It knows nothing, not even its promises; and it has no ranks.
void NodeFaults::Restart(Launcher& l) {
  if (launchers_.Over() || l.alive) return;
  world_.Log("the launcher of " + NodeName(l.node) + " is started anew");
  world_.course.host_back = world_.Now();
  const uint64_t life = l.life;
  const int node = l.node;
  election_checker_.ForgetPromises(node);
  l = Launcher();
  l.life = life + 1;
  electors_.Start(l, node);
}

bool NodeFaults::Freeze(Launcher& l, Duration length) {
  if (!l.alive || l.frozen || l.ended) return false;
  world_.losses.AllLate();
  l.frozen = true;
  world_.In(length, [this, &l] {
    if (!l.alive || !l.frozen) return;
    world_.Log("the launcher of " + NodeName(l.node) + " thaws");
    l.frozen = false;
    for (Task& task : std::exchange(l.deferred, {})) {
      if (!l.alive) return;
      task();
    }
  });
  return true;
}

// The ranks' own roads: launchers go on hearing each other.
bool NodeFaults::CloseRoads(const PlannedFault& fault) {
  const int nodes = world_.plan.nodes, from = world_.plan.NodeOf(fault.rank);
  const int others = std::min(fault.count, nodes - 1);
  const bool one_way = world_.random.Chance(0.3);
  Collectives::NodeRoads roads;
  for (int i = 1; i <= others; ++i) {
    roads.emplace_back(from, (from + i) % nodes);
    if (!one_way) roads.emplace_back((from + i) % nodes, from);
  }
  world_.losses.AllLate();
  world_.Log("closed to ranks: node " + std::to_string(from) + " and " + std::to_string(others) + " more" +
             (one_way ? ", one way" : "") + (fault.lasting ? ", for good" : ""));
  collectives_.CloseRoads(roads);
  if (fault.lasting) return true;
  world_.In(world_.Between(300'000, 20'000'000), [this, roads] {
    world_.Log("roads are open again");
    world_.NoteProgress();
    world_.course.last_struck = world_.Now();
    collectives_.OpenRoads(roads);
  });
  return true;
}

// Two sides that do not hear each other, or of which one does not hear the other.
bool NodeFaults::Cut(const PlannedFault& fault) {
  if (world_.plan.nodes < 2) return false;
  std::vector<bool> side(static_cast<size_t>(world_.Hosts()));
  for (int node = 0; node < world_.Hosts(); ++node)
    side[static_cast<size_t>(node)] =
        fault.type == FaultType::kNodesCutInHalves ? 2 * node >= world_.Hosts() : world_.random.Chance(0.5);
  if (std::count(side.begin(), side.end(), side[0]) == world_.Hosts()) side.back() = !side.back();
  const Duration length = fault.lasting ? world_.Between(1'500'000, 9'000'000) : world_.Between(50'000, 900'000);
  world_.losses.AllLate();
  Network::NodeRoads roads;
  for (int a = 0; a < world_.Hosts(); ++a)
    for (int b = 0; b < world_.Hosts(); ++b) {
      if (side[static_cast<size_t>(a)] == side[static_cast<size_t>(b)]) continue;
      if (fault.type != FaultType::kNodesCutOneWay || side[static_cast<size_t>(a)]) roads.emplace_back(a, b);
    }
  network_.CutNodes(roads);
  std::string cut;
  for (const auto& [a, b] : roads) cut += " " + std::to_string(a) + ">" + std::to_string(b);
  world_.Log("cut for " + Milliseconds(length) + " ms:" + cut);
  // Keepalive, at the end that tells nobody.
  for (NodeLine& line : lines_.all()) {
    const int a = line.launcher->node, b = line.seat->node;
    if (!line.open_there || !(network_.CutBetween(a, b) || network_.CutBetween(b, a))) continue;
    const Duration keepalive = world_.Between(2'000'000, 4'000'000);
    if (keepalive < length) CloseLater(&line, keepalive);
  }
  if (world_.random.Chance(0.5))  // the ranks' own connections take the same roads
    for (Process* const p : world_.processes.newest())
      if (p && p->alive && p->group.value() > 0) {
        collectives_.BreakGroup(p->group);
        break;
      }
  world_.In(length, [this, roads] {
    network_.MendNodes(roads);
    world_.Log("a cut between nodes heals");
    world_.NoteProgress();
    lines_.DeliverHeld();
    network_.DeliverHeld();
  });
  return true;
}

}  // namespace kintsugi::sim
