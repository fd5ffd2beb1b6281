// Warm processes that wait on each node. Mirrors runtime/launcher/spare_pool: until one is taken it is no more than a
// number, which the controller is told some time after it has changed.
#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

void Cluster::BeginSpares() {
  if (world_.plan.spares == 0 || !spares_.empty()) return;
  spares_.assign(static_cast<size_t>(world_.plan.nodes), 0);
  for (int node = 0; node < world_.plan.nodes; ++node)
    for (int i = 0; i < world_.plan.spares; ++i) StartSpare(node);
}

void Cluster::StartSpare(int node) {
  world_.In(world_.Between(5000, 150000), [this, node] {
    ++spares_[static_cast<size_t>(node)];
    TellSpares(node);
  });
}

bool Cluster::TakeSpare(Rank rank) {
  if (spares_.empty()) return false;
  const int node = world_.plan.NodeOf(rank.value());
  int& waiting = spares_[static_cast<size_t>(node)];
  if (waiting == 0) return false;
  --waiting;
  TellSpares(node);
  StartSpare(node);
  // It may have died before its launcher knew of it: then a process is started as if there had been none.
  if (world_.random.Chance(0.1)) return false;
  world_.Log("a spare of node " + std::to_string(node) + " becomes rank " + rank.ToString());
  return true;
}

void Cluster::TellSpares(int node) {
  world_.In(world_.Between(50, 3000), [this, node] {
    if (world_.seat().ended) return;
    core::SparesWaiting spares{Rank(), 0, spares_[static_cast<size_t>(node)]};
    for (int rank = world_.plan.policy.world_size - 1; rank >= 0; --rank)
      if (world_.plan.NodeOf(rank) == node) spares.first = Rank(rank), ++spares.ranks;
    Feed(spares);
  });
}

}  // namespace kintsugi::sim
