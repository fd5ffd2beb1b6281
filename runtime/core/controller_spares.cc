// Spares: warm processes that wait on a node for a rank whose process is gone. Launchers tell how many there are and
// hand them out whenever they start a process; here they are counted, so that the ladder knows what becomes of a death.
#include "runtime/core/controller_core.h"

namespace kintsugi::core {

void ControllerCore::OnSpares(const SparesWaiting& spares) {
  const int64_t end = int64_t{spares.first.value()} + spares.ranks;
  if (!InWorld(spares.first) || spares.ranks < 1 || end > policy_.world_size || spares.waiting < 0) return;
  spares_[spares.first] = spares;
}

// What a launcher tells next sets it right where both sides spoke at once.
bool ControllerCore::TakeSpare(Rank rank) {
  for (auto& [first, node] : spares_) {
    if (rank < first || rank.value() >= first.value() + node.ranks || node.waiting == 0) continue;
    --node.waiting;
    return true;
  }
  return false;
}

}  // namespace kintsugi::core
