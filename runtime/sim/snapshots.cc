#include "runtime/sim/snapshots.h"

#include <algorithm>

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

bool StillAt(const Process* p, uint64_t step) {
  const GateWord word = p->Word();
  return !word.locked && ((word.state == GateState::kCommitted && word.step.value() == step) ||
                          (word.state == GateState::kAtGate && word.step.value() == step + 1));
}

}  // namespace

void Snapshots::Arm(Process* p, const core::ArmSnapshot& arm) {
  p->snapshot = arm;
  if (p->begun <= arm.order.step.value()) return;
  p->snapshot.reset();
  Tell(p, arm.generation,
       {.owner = p->rank, .step = arm.order.step, .code = StatusCode::kUnavailable, .text = "too late"});
}

void Snapshots::Tell(Process* p, Generation generation, SnapshotReport report) {
  report.begun = kintsugi::Step(p->begun);
  agents_.Step(p, SnapshotCopied{generation, std::move(report)});
}

void Snapshots::Abort(Process* p) {
  p->snapshot.reset();
  ++p->snapshot_epoch;
  for (auto& [owner, held] : p->snapshots) {
    held.slots.Abandon();
    ++held.attempt;
  }
}

void Snapshots::Take(Process* p) {
  const auto arm = std::make_shared<const core::ArmSnapshot>(*std::exchange(p->snapshot, std::nullopt));
  HeldSnapshots& own = p->snapshots[p->rank];
  HeldSnapshot& into = own.in_slot[static_cast<size_t>(own.slots.Begin(arm->order.step, arm->order.keep))];
  into = {arm->order.step.value(), p->memory.state, {}};
  // Mostly much shorter than a step, now and then not.
  const Duration piece = world_.random.Chance(0.2) ? world_.Share(5, 60) : world_.Share(1, 5);
  CopyPiece(p, arm, 0, ++own.attempt, piece);
}

void Snapshots::CopyPiece(Process* p, const Order& arm, size_t number, uint64_t attempt, Duration piece) {
  world_.For(p, piece, [this, p, arm, number, attempt, piece] {
    HeldSnapshots& own = p->snapshots[p->rank];
    if (own.attempt != attempt) return;
    HeldSnapshot& into = own.in_slot[static_cast<size_t>(*own.slots.making())];
    const int layout = p->memory.state.shards[number / kTensorsPerLayout].layout;
    into.state.TakeTensor(layout, number % kTensorsPerLayout, p->memory.state);
    const bool last = number + 1 == PieceCount(p->memory.state);
    if (!StillAt(p, into.step) && !(world_.hook && world_.hook->CountsUnfinishedCopy())) {
      own.slots.Abandon();
      world_.Log("rank " + p->rank.ToString() + " gives its snapshot of step " + std::to_string(into.step) + " up");
      return Tell(
          p, arm->generation,
          {.owner = p->rank, .step = arm->order.step, .code = StatusCode::kCancelled, .text = "the gate came first"});
    }
    if (!last) return CopyPiece(p, arm, number + 1, attempt, piece);
    for (size_t r = 0; r < world_.size; ++r)
      if (const Object* object = p->ObjectOf(Rank(static_cast<int32_t>(r)), into.step))
        into.objects[Rank(static_cast<int32_t>(r))] = *object;
    own.slots.Finish();
    Send(p, arm, into);
  });
}

SnapshotReport Snapshots::ReportOn(const Process* p, Rank owner, const HeldSnapshot& held) const {
  SnapshotReport report{.owner = owner, .step = kintsugi::Step(held.step), .cost = 1ms};
  for (const Shard& shard : held.state.shards) {
    uint64_t& digest = report.digests[shard.layout];
    digest = digest == 0 ? DigestOf(shard.tensors) : Mix(digest, DigestOf(shard.tensors));
  }
  for (auto& [layout, digest] : report.digests)
    for (Rank holder : p->cut->replicas.Holders(layout, owner)) {
      if (!p->InCrew(holder)) continue;
      const auto object = held.objects.find(holder);
      digest = Mix(digest, object == held.objects.end() ? 0 : Mix(object->second.value, object->second.position));
    }
  return report;
}

void Snapshots::Send(Process* p, const Order& arm, const HeldSnapshot& snapshot) {
  const Rank partner = arm->order.partner;
  const auto held = std::make_shared<const HeldSnapshot>(snapshot);
  const auto tell = [this, p, arm, epoch = p->snapshot_epoch](const std::shared_ptr<const SnapshotReport>& report) {
    if (p->snapshot_epoch == epoch) Tell(p, arm->generation, *report);
  };
  const auto mine = std::make_shared<const SnapshotReport>(ReportOn(p, p->rank, *held));
  if (partner.value() < 0) return tell(mine);
  Process* const q = world_.processes.Newest(partner);
  if (!q || !q->alive || !q->core || q->core->generation() != arm->generation || q->core->locked()) {
    const auto failed = std::make_shared<const SnapshotReport>(SnapshotReport{
        .owner = p->rank, .step = arm->order.step, .code = StatusCode::kCommFailure, .text = "no link to the partner"});
    return world_.For(p, world_.Between(10, 2000), [tell, failed] { tell(failed); });
  }
  HeldSnapshots& theirs = q->snapshots[p->rank];
  theirs.in_slot[static_cast<size_t>(theirs.slots.Begin(arm->order.step, arm->order.keep))].step = 0;
  world_.For(q, world_.Between(50, 20000),
             [this, p, q, arm, held, tell, mine, here = p->snapshot_epoch, attempt = ++theirs.attempt] {
               HeldSnapshots& kept = q->snapshots[p->rank];
               if (kept.attempt != attempt) return;
               if (!p->alive || p->snapshot_epoch != here)
                 return kept.slots.Abandon();  // the link closed in mid-stream
               kept.in_slot[static_cast<size_t>(*kept.slots.making())] = *held;
               kept.slots.Finish();
               Tell(q, arm->generation, ReportOn(p, p->rank, *held));
               world_.For(p, world_.Between(10, 500), [tell, mine] { tell(mine); });
             });
}

const HeldSnapshot* Snapshots::Find(const Process* p, Rank owner, uint64_t step) const {
  const auto held = p->snapshots.find(owner);
  if (held == p->snapshots.end()) return nullptr;
  auto slot = held->second.slots.Find(kintsugi::Step(step));
  if (world_.hook && world_.hook->TakesAnyStep())
    for (int i = 0; i < SnapshotSlots::kSlots; ++i)
      if (!slot && held->second.in_slot[static_cast<size_t>(i)].step > 0) slot = i;
  return slot ? &held->second.in_slot[static_cast<size_t>(*slot)] : nullptr;
}

void Snapshots::TakeObjects(Process* p, const HeldSnapshot& held, int layout) const {
  for (Rank holder : p->Holders(layout)) {
    const auto object = held.objects.find(holder);
    ObjectHistory& kept = holder == p->rank ? p->memory.objects : p->memory.mirrored[holder];
    kept.Clear();
    if (object != held.objects.end()) kept.Put(held.step, object->second);
  }
}

}  // namespace kintsugi::sim
