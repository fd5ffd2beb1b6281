#include "runtime/core/spare_counts.h"

#include "runtime/base/check.h"

namespace kintsugi::core {

void SpareCounts::Tell(const SparesWaiting& spares) {
  const int64_t end = int64_t{spares.first.value()} + spares.ranks;
  if (spares.first.value() < 0 || spares.ranks < 1 || end > world_size_ || spares.waiting < 0) return;
  nodes_[spares.first] = spares;
}

bool SpareCounts::Take(Rank rank) {
  KINTSUGI_CHECK(rank.value() >= 0 && rank.value() < world_size_, "rank " + rank.ToString() + " is outside the world");
  for (auto& [first, node] : nodes_) {
    KINTSUGI_CHECK(node.waiting >= 0, "fewer than no spares wait on the node of rank " + first.ToString());
    if (rank < first || rank.value() >= first.value() + node.ranks || node.waiting == 0) continue;
    --node.waiting;
    return true;
  }
  return false;
}

}  // namespace kintsugi::core
