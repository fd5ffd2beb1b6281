// Rot: bits that flip in committed state, and nobody says so. Comparisons of replicas (`verify_every`) must find them.
//
// A flipped bit spreads with the next gradients: from then on every rank computes with numbers that the undisturbed run
// does not have, and only the replicas of the flipped copy differ. The checkers follow that: until the next comparison
// ranks may hold tainted state, but none is saved, and nobody trains on beyond it.
//
// Threads: none.
// Invariants: at most one bit flips unseen in a run (`World::bit`); once it is hidden no checker looks for it.
#pragma once

#include "runtime/sim/world.h"

namespace kintsugi::sim {

class Rot {
 public:
  explicit Rot(World& world) : world_(world) {}

  // Whether the process computes with committed state, so that there is a bit to flip.
  bool Flip(Process* p);
  // The copy that differs is gone, or that from which it differs, or one is the other's now.
  void Lose(const Process* p);

 private:
  bool IsRotten(Rank rank) const;

  World& world_;
};

}  // namespace kintsugi::sim
