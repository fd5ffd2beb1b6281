// Snapshots: in-memory snapshots of virtual ranks: copied piece by piece while the step computes, sent to the partner,
// found again for a reload. Mirrors runtime/agent and replica/snapshot around the same SnapshotSlots.
//
// Threads: none.
// Ownership: copies are their processes'.
// Invariants: a copy that the gate overtook is given up; a lock voids all that is under way, and leaves what is whole.
#pragma once

#include <memory>

#include "runtime/sim/upward.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class Snapshots {
 public:
  Snapshots(World& world, AgentInbox& agents) : world_(world), agents_(agents) {}

  // A snapshot is ordered, at a boundary that may have passed.
  void Arm(Process* p, const core::ArmSnapshot& arm);
  // The gate is locked: what is under way is given up, what is whole stays.
  void Abort(Process* p);
  // At the boundary: the trainer goes on, the copy is another thread's.
  void Take(Process* p);

  // What a rank holds of an owner's snapshot at `step`; null: nothing that is whole.
  const HeldSnapshot* Find(const Process* p, Rank owner, uint64_t step) const;
  // The objects of a layout's holders, as the snapshot has them.
  void TakeObjects(Process* p, const HeldSnapshot& held, int layout) const;

 private:
  using Order = std::shared_ptr<const core::ArmSnapshot>;
  void Tell(Process* p, Generation generation, SnapshotReport report);
  void CopyPiece(Process* p, const Order& arm, size_t number, uint64_t attempt, Duration piece);
  SnapshotReport ReportOn(const Process* p, Rank owner, const HeldSnapshot& held) const;
  void Send(Process* p, const Order& arm, const HeldSnapshot& snapshot);

  World& world_;
  AgentInbox& agents_;
};

}  // namespace kintsugi::sim
