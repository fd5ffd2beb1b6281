// Checkpoints: parts are written by many, made visible by one, and read again in a reload.
//
// Threads: none.
// Ownership: the files are the world's (`World::disk`): checkers look at them.
// Errors: a part that its writer does not hold, and a reload of what is not there, are broken promises.
// Invariants: a checkpoint is checked before it becomes visible.
#pragma once

#include "runtime/sim/held_memory.h"
#include "runtime/sim/rot.h"
#include "runtime/sim/state_checker.h"
#include "runtime/sim/upward.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class Checkpoints {
 public:
  Checkpoints(World& world, StateChecker& checker, Rot& rot, HeldMemory& held, HandlerEnd& handlers)
      : world_(world), state_checker_(checker), rot_(rot), held_(held), handlers_(handlers) {}

  // The process runs DUMP, RENAME, or a REPAIR that reads a checkpoint.
  void Save(Process* p);
  void Rename(Process* p);
  void Reload(Process* p);

 private:
  World& world_;
  StateChecker& state_checker_;
  Rot& rot_;
  HeldMemory& held_;
  HandlerEnd& handlers_;
};

}  // namespace kintsugi::sim
