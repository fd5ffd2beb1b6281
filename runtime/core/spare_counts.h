// SpareCounts: how many warm processes wait on each node for a rank whose process is gone, so that the ladder knows what
// becomes of a death. Launchers tell, and hand them out whenever they start a process.
//
// Threads: none.
// Errors: what fits no node of the world is not taken.
// Invariants: a node's count is what its launcher told last, less what was taken since; never below 0.
#pragma once

#include <map>

#include "runtime/core/controller_types.h"

namespace kintsugi::core {

class SpareCounts {
 public:
  explicit SpareCounts(int world_size) : world_size_(world_size) {}

  // What a launcher tells next sets it right where both sides spoke at once.
  void Tell(const SparesWaiting& spares);
  // One that waits on the rank's node takes its place. False: none waits there.
  bool Take(Rank rank);

 private:
  int world_size_;
  std::map<Rank, SparesWaiting> nodes_;  // by each node's first rank
};

}  // namespace kintsugi::core
