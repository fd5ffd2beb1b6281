#include "runtime/sim/spares.h"

namespace kintsugi::sim {

void Spares::Begin() {
  if (world_.plan.spares == 0 || !waiting_.empty()) return;
  waiting_.assign(static_cast<size_t>(world_.plan.nodes), 0);
  for (int node = 0; node < world_.plan.nodes; ++node)
    for (int i = 0; i < world_.plan.spares; ++i) Start(node);
}

void Spares::Start(int node) {
  world_.In(world_.Between(5000, 150000), [this, node] {
    ++waiting_[static_cast<size_t>(node)];
    Tell(node);
  });
}

bool Spares::Take(Rank rank) {
  if (waiting_.empty()) return false;
  const int node = world_.plan.NodeOf(rank.value());
  int& waiting = waiting_[static_cast<size_t>(node)];
  if (waiting == 0) return false;
  --waiting;
  Tell(node);
  Start(node);
  // It may have died before its launcher knew of it: then a process is started as if there had been none.
  if (world_.random.Chance(0.1)) return false;
  world_.Log("a spare of node " + std::to_string(node) + " becomes rank " + rank.ToString());
  return true;
}

void Spares::Tell(int node) {
  world_.In(world_.Between(50, 3000), [this, node] {
    if (world_.seat().ended) return;
    core::SparesWaiting spares{Rank(), 0, waiting_[static_cast<size_t>(node)]};
    for (int rank = world_.plan.policy.world_size - 1; rank >= 0; --rank)
      if (world_.plan.NodeOf(rank) == node) spares.first = Rank(rank), ++spares.ranks;
    controller_.Feed(spares);
  });
}

void Spares::TellAgain(int node) {
  if (!waiting_.empty()) Tell(node);
}

}  // namespace kintsugi::sim
