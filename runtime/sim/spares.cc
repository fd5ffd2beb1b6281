// Warm processes that wait on each node. Mirrors runtime/launcher/spare_pool: until one is taken it is no more than a
// number, which the controller is told some time after it has changed.
#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

void Cluster::BeginSpares() {
  if (plan_.spares == 0 || !spares_.empty()) return;
  spares_.assign(static_cast<size_t>(plan_.nodes), 0);
  for (int node = 0; node < plan_.nodes; ++node)
    for (int i = 0; i < plan_.spares; ++i) StartSpare(node);
}

void Cluster::StartSpare(int node) {
  In(Between(5000, 150000), [this, node] {
    ++spares_[static_cast<size_t>(node)];
    TellSpares(node);
  });
}

bool Cluster::TakeSpare(Rank rank) {
  if (spares_.empty()) return false;
  const int node = plan_.NodeOf(rank.value());
  int& waiting = spares_[static_cast<size_t>(node)];
  if (waiting == 0) return false;
  --waiting;
  TellSpares(node);
  StartSpare(node);
  // It may have died before its launcher knew of it: then a process is started as if there had been none.
  if (random_.Chance(0.1)) return false;
  Log("a spare of node " + std::to_string(node) + " becomes rank " + rank.ToString());
  return true;
}

void Cluster::TellSpares(int node) {
  In(Between(50, 3000), [this, node] {
    if (ended_) return;
    core::SparesWaiting spares{Rank(), 0, spares_[static_cast<size_t>(node)]};
    for (int rank = plan_.policy.world_size - 1; rank >= 0; --rank)
      if (plan_.NodeOf(rank) == node) spares.first = Rank(rank), ++spares.ranks;
    Feed(spares);
  });
}

}  // namespace kintsugi::sim
