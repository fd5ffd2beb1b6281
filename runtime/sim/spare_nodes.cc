// Nodes that have no ranks, and take those of a node that stays away. Mirrors runtime/launcher/nodes.cc and
// node_link.cc around the real Placement.
#include <algorithm>

#include "runtime/sim/elections.h"

namespace kintsugi::sim {

std::optional<Incarnation>& Cluster::NextOn(int node, Rank rank) { return next_on_[{node, rank.value()}]; }

bool Cluster::Learn(Launcher& l, core::Placement placement) {
  if (world_.hook) world_.hook->OnPlacement(l.node, &placement);
  if (!l.placement.Learn(placement)) return false;
  l.election->SetPlacement(l.placement);
  return true;
}

// By the word of a leader: what runs of ranks that another node has now ends.
void Cluster::OnPlacement(Launcher& l, const core::Placement& placement) {
  Learn(l, placement);
  if (placement.version() != l.placement.version()) return;
  const std::optional<int> before = std::exchange(l.block, l.placement.BlockOf(l.node, world_.plan.nodes));
  l.election->SetHasRanks(l.block.has_value());
  if (l.block == before) return;
  world_.Log("node " + std::to_string(l.node) + (l.block ? " has block " + std::to_string(*l.block) : " is a spare"));
  if (!before) return;
  for (Process* const p : world_.processes.On(l.node)) {
    NextOn(l.node, p->rank).reset();
    if (p->alive) KillHere(l, p->rank, p->incarnation);
  }
}

bool Cluster::SpareHere(const Seat& seat) const {
  return std::any_of(seat.lines.begin(), seat.lines.end(),
                     [&](const auto& line) { return !seat.placement.BlockOf(line.first, world_.plan.nodes); });
}

void Cluster::MoveBlocks(Seat& seat) {
  if (world_.plan.spare_nodes == 0) return;
  AtSeat(&seat, [this, &seat] {
    if (world_.seat().ended) return;
    std::vector<core::Host> hosts;
    for (const auto& [node, lost_at] : seat.lost_at) hosts.push_back({node, seat.lines.count(node) > 0, lost_at});
    const auto due = core::NextTakeover(
        seat.placement, world_.plan.nodes, hosts, world_.plan.spare_after, world_.Now(),
        [this](int block) { return world_.core().MayMove(Rank(block * world_.LocalRanks()), world_.LocalRanks()); });
    if (!due) return;
    world_.Log("== node " + std::to_string(due->to) + " takes block " + std::to_string(due->block) +
               " over from node " + std::to_string(due->from));
    ++world_.outcome.moved;
    seat.placement.Move(seat.term.number, due->block, due->to, seat.running);
    seat.to_spawn[due->from].clear();
    table_checker_.GiveBack(Rank(due->block * world_.LocalRanks()), world_.LocalRanks());
    for (const auto& [node, line] : seat.lines) SendToNode(node, wire::NodeBlocks{seat.placement});
    Feed(core::RanksMoved{Rank(due->block * world_.LocalRanks()), world_.LocalRanks(), due->to});
  });
}

}  // namespace kintsugi::sim
