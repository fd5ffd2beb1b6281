// Nodes that have no ranks, and take those of a node that stays away. Mirrors runtime/launcher/nodes.cc and node_link.cc
// around the real Placement.
#include <algorithm>

#include "runtime/sim/elections.h"

namespace kintsugi::sim {

Cluster::ProcessPtr Cluster::NewestOn(int node, Rank rank) const {
  const auto found = on_.find({node, rank.value()});
  return found == on_.end() ? nullptr : found->second;
}

// In the order of their ranks.
std::vector<Cluster::ProcessPtr> Cluster::On(int node) const {
  std::vector<ProcessPtr> here;
  for (auto at = on_.lower_bound({node, 0}); at != on_.end() && at->first.first == node; ++at)
    here.push_back(at->second);
  return here;
}

std::optional<Incarnation>& Cluster::NextOn(int node, Rank rank) { return next_on_[{node, rank.value()}]; }

int Cluster::SeatedNodeOf(Rank rank) const { return seated_->placement.NodeOf(rank.value() / LocalRanks()); }

bool Cluster::Learn(Launcher& l, core::Placement placement) {
  if (hook_) hook_->OnPlacement(l.node, &placement);
  if (!l.placement.Learn(placement)) return false;
  l.election->SetPlacement(l.placement);
  return true;
}

// By the word of a leader: what runs of ranks that another node has now ends.
void Cluster::OnPlacement(Launcher& l, const core::Placement& placement) {
  Learn(l, placement);
  if (placement.version() != l.placement.version()) return;
  const std::optional<int> before = std::exchange(l.block, l.placement.BlockOf(l.node, plan_.nodes));
  l.election->SetHasRanks(l.block.has_value());
  if (l.block == before) return;
  Log("node " + std::to_string(l.node) + (l.block ? " has block " + std::to_string(*l.block) : " is a spare"));
  if (!before) return;
  for (const ProcessPtr p : On(l.node)) {
    NextOn(l.node, p->rank).reset();
    if (p->alive) KillHere(l, p->rank, p->incarnation);
  }
}

bool Cluster::SpareHere(const Seat& seat) const {
  return std::any_of(seat.lines.begin(), seat.lines.end(),
                     [&](const auto& line) { return !seat.placement.BlockOf(line.first, plan_.nodes); });
}

void Cluster::MoveBlocks(Seat& seat) {
  if (plan_.spare_nodes == 0) return;
  AtSeat(&seat, [this, &seat] {
    if (ended_) return;
    std::vector<core::Host> hosts;
    for (const auto& [node, lost_at] : seat.lost_at) hosts.push_back({node, seat.lines.count(node) > 0, lost_at});
    const auto due =
        core::NextTakeover(seat.placement, plan_.nodes, hosts, plan_.spare_after, Now(),
                           [this](int block) { return core_->MayMove(Rank(block * LocalRanks()), LocalRanks()); });
    if (!due) return;
    Log("== node " + std::to_string(due->to) + " takes block " + std::to_string(due->block) + " over from node " +
        std::to_string(due->from));
    ++outcome_.moved;
    seat.placement.Move(seat.term.number, due->block, due->to, seat.running);
    seat.to_spawn[due->from].clear();
    for (int r = due->block * LocalRanks(); r < (due->block + 1) * LocalRanks(); ++r) --spawns_[Rank(r)];
    for (const auto& [node, line] : seat.lines) SendToNode(node, wire::NodeBlocks{seat.placement});
    Feed(core::RanksMoved{Rank(due->block * LocalRanks()), LocalRanks(), due->to});
  });
}

// For the checker: whose word counts for a rank. The process that has held the run's state last is the rank's; one that
// was begun elsewhere, and holds nothing yet, is none.
int Cluster::HolderOf(int rank) const {
  int holder = plan_.NodeOf(rank);
  if (plan_.spare_nodes == 0) return holder;
  for (const auto& p : all_processes_)
    if (p->rank.value() == rank && p->core && p->core->standing() != core::Standing::kNew) holder = p->node;
  return holder;
}

}  // namespace kintsugi::sim
