// In-memory snapshots of virtual ranks: copied piece by piece while the step computes, sent to the partner, given back
// in a reload. Mirrors runtime/agent and replica/snapshot around the same SnapshotSlots and the same AgentCore.
#include <algorithm>

#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

void Cluster::ArmSnapshot(Process* p, const core::ArmSnapshot& arm) {
  p->snapshot = arm;
  if (p->begun <= arm.order.step.value()) return;
  p->snapshot.reset();
  TellOfSnapshot(p, arm.generation,
                 {.owner = p->rank, .step = arm.order.step, .code = StatusCode::kUnavailable, .text = "too late"});
}

void Cluster::TellOfSnapshot(Process* p, Generation generation, SnapshotReport report) {
  report.begun = kintsugi::Step(p->begun);
  StepAgent(p, SnapshotCopied{generation, std::move(report)});
}

// The gate is locked: what is under way is given up, what is whole stays.
void Cluster::AbortSnapshot(Process* p) {
  p->snapshot.reset();
  ++p->snapshot_epoch;
  for (auto& [owner, held] : p->snapshots) {
    held.slots.Abandon();
    ++held.attempt;
  }
}

bool Cluster::StillAt(Process* p, uint64_t step) const {
  const GateWord word = p->Word();
  return !word.locked && ((word.state == GateState::kCommitted && word.step.value() == step) ||
                          (word.state == GateState::kAtGate && word.step.value() == step + 1));
}

// At the boundary: the trainer goes on, the copy is another thread's.
void Cluster::TakeSnapshot(Process* p) {
  const auto arm = std::make_shared<const core::ArmSnapshot>(*std::exchange(p->snapshot, std::nullopt));
  HeldSnapshots& own = p->snapshots[p->rank];
  HeldSnapshot& into = own.places[static_cast<size_t>(own.slots.Begin(arm->order.step, arm->order.keep))];
  into = {arm->order.step.value(), p->state, {}};
  // Mostly much shorter than a step, now and then not.
  const Duration piece = world_.random.Chance(0.2) ? world_.Share(5, 60) : world_.Share(1, 5);
  CopyPiece(p, arm, 0, ++own.attempt, piece);
}

void Cluster::CopyPiece(Process* p, const Arm& arm, size_t number, uint64_t attempt, Duration piece) {
  world_.For(p, piece, [this, p, arm, number, attempt, piece] {
    HeldSnapshots& own = p->snapshots[p->rank];
    if (own.attempt != attempt) return;
    HeldSnapshot& into = own.places[static_cast<size_t>(*own.slots.making())];
    const size_t shard = number / kTensorsPerLayout, tensor = number % kTensorsPerLayout;
    into.state.shards[shard].tensors[tensor] = p->state.shards[shard].tensors[tensor];
    const bool last = number + 1 == PieceCount(p->state);
    if (!StillAt(p, into.step) && !(world_.hook && world_.hook->CountsUnfinishedCopy())) {
      own.slots.Abandon();
      world_.Log("rank " + p->rank.ToString() + " gives its snapshot of step " + std::to_string(into.step) + " up");
      return TellOfSnapshot(
          p, arm->generation,
          {.owner = p->rank, .step = arm->order.step, .code = StatusCode::kCancelled, .text = "the gate came first"});
    }
    if (!last) return CopyPiece(p, arm, number + 1, attempt, piece);
    for (size_t r = 0; r < world_.size; ++r)
      if (const Object* object = p->ObjectOf(Rank(static_cast<int32_t>(r)), into.step))
        into.objects[Rank(static_cast<int32_t>(r))] = *object;
    own.slots.Finish();
    SendSnapshot(p, arm, into);
  });
}

SnapshotReport Cluster::ReportOn(Rank owner, const HeldSnapshot& held) const {
  SnapshotReport report{.owner = owner, .step = kintsugi::Step(held.step), .cost = 1ms};
  for (const Shard& shard : held.state.shards) {
    uint64_t digest = DigestOf(shard.tensors);
    for (Rank holder : world_.replicas.Holders(shard.layout, owner)) {
      const auto object = held.objects.find(holder);
      digest = Mix(digest, object == held.objects.end() ? 0 : Mix(object->second.value, object->second.position));
    }
    report.digests[shard.layout] = digest;
  }
  return report;
}

void Cluster::SendSnapshot(Process* p, const Arm& arm, const HeldSnapshot& snapshot) {
  const Rank partner = arm->order.partner;
  const auto held = std::make_shared<const HeldSnapshot>(snapshot);
  const auto tell = [this, p, arm, epoch = p->snapshot_epoch](const std::shared_ptr<const SnapshotReport>& report) {
    if (p->snapshot_epoch == epoch) TellOfSnapshot(p, arm->generation, *report);
  };
  const auto mine = std::make_shared<const SnapshotReport>(ReportOn(p->rank, *held));
  if (partner.value() < 0) return tell(mine);
  Process* const q = world_.processes.Newest(partner);
  if (!q || !q->alive || !q->core || q->core->generation() != arm->generation || q->core->locked()) {
    const auto failed = std::make_shared<const SnapshotReport>(SnapshotReport{
        .owner = p->rank, .step = arm->order.step, .code = StatusCode::kCommFailure, .text = "no link to the partner"});
    return world_.For(p, world_.Between(10, 2000), [tell, failed] { tell(failed); });
  }
  HeldSnapshots& theirs = q->snapshots[p->rank];
  theirs.places[static_cast<size_t>(theirs.slots.Begin(arm->order.step, arm->order.keep))].step = 0;
  world_.For(q, world_.Between(50, 20000),
             [this, p, q, arm, held, tell, mine, here = p->snapshot_epoch, attempt = ++theirs.attempt] {
               HeldSnapshots& kept = q->snapshots[p->rank];
               if (kept.attempt != attempt) return;
               if (!p->alive || p->snapshot_epoch != here)
                 return kept.slots.Abandon();  // the link closed in mid-stream
               kept.places[static_cast<size_t>(*kept.slots.making())] = *held;
               kept.slots.Finish();
               TellOfSnapshot(q, arm->generation, ReportOn(p->rank, *held));
               world_.For(p, world_.Between(10, 500), [tell, mine] { tell(mine); });
             });
}

// What a rank holds of an owner's snapshot at `step`; null: nothing that is whole.
const HeldSnapshot* Cluster::FindSnapshot(Process* p, Rank owner, uint64_t step) const {
  const auto held = p->snapshots.find(owner);
  if (held == p->snapshots.end()) return nullptr;
  auto place = held->second.slots.Find(kintsugi::Step(step));
  if (world_.hook && world_.hook->TakesAnyStep())
    for (int i = 0; i < SnapshotSlots::kPlaces; ++i)
      if (!place && held->second.places[static_cast<size_t>(i)].step > 0) place = i;
  return place ? &held->second.places[static_cast<size_t>(*place)] : nullptr;
}

void Cluster::ReloadFromMemory(Process* p) {
  const PhaseOrder& order = p->running->order;
  const uint64_t step = order.step.value();
  const auto comes = [&order, p](int layout) {
    return std::any_of(order.moves.begin(), order.moves.end(),
                       [&](const RepairMove& m) { return m.destination == p->rank && m.layout == layout; });
  };
  p->damaged = p->flipped = false;
  p->silent_bit = 0;
  const bool all_come = std::all_of(p->state.shards.begin(), p->state.shards.end(),
                                    [&](const Shard& shard) { return comes(shard.layout); });
  if (!all_come && !state_checker_.CheckSnapshot(*p, p->rank, step, FindSnapshot(p, p->rank, step))) return;
  for (Shard& shard : p->state.shards)
    if (!comes(shard.layout)) shard.tensors[0].value = Mix(shard.tensors[0].value, 3);
  world_.ForTrainer(p, world_.Between(100, 10000), [this, p, step] {
    const auto& moves = p->running->order.moves;
    const HeldSnapshot* own = FindSnapshot(p, p->rank, step);
    for (Shard& shard : p->state.shards) {
      const bool moved = std::any_of(moves.begin(), moves.end(), [&](const RepairMove& m) {
        return m.destination == p->rank && m.layout == shard.layout;
      });
      if (moved) continue;
      shard.tensors = own->state.Of(shard.layout);
      TakeObjects(p, *own, shard.layout);
    }
    Repair(p);
  });
}

void Cluster::TakeObjects(Process* p, const HeldSnapshot& held, int layout) {
  for (Rank holder : world_.replicas.Holders(layout, p->rank)) {
    const auto object = held.objects.find(holder);
    ObjectHistory& kept = holder == p->rank ? p->objects : p->mirrored[holder];
    kept.Clear();
    if (object != held.objects.end()) kept.Put(held.step, object->second);
  }
}

bool Cluster::LoseGroup(int rank) {
  std::vector<Process*> lost;
  const Rank of(rank);
  for (Rank holder : world_.replicas.Holders(world_.replicas.LayoutsOf(of).front(), of))
    if (Process* const p = world_.processes.Newest(holder); p && p->alive) lost.push_back(p);
  for (Process* const p : lost) {
    world_.losses.Lose(p->rank.value());
    if (!world_.plan.policy.adopts) {
      world_.In(world_.Between(1, 2000), [this, p] { Die(p, "killed by SIGKILL"); });
      continue;
    }
    // What is left of them differs: a crash, a place in the step, or one that lives on with nothing of use.
    const uint64_t how = world_.random.Below(6);
    world_.In(world_.Between(1, 4000), [this, p, how] {
      if (p->alive && p->core && p->at != TrainerAt::kBoot && how == 0) return Damage(p, false);
      Die(p, how == 1 ? "killed by SIGSEGV" : "killed by SIGKILL");
    });
  }
  return !lost.empty();
}

}  // namespace kintsugi::sim
