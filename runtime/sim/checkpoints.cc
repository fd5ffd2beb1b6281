#include "runtime/sim/checkpoints.h"

namespace kintsugi::sim {

void Checkpoints::Save(Process* p) {
  world_.ForTrainer(p, world_.Between(1000, 20000), [this, p] {
    const PhaseOrder& order = p->running->order;
    const uint64_t step = order.step.value();
    for (const SaveEntry& entry : order.entries) {
      for (const Shard& shard : p->memory.state.shards)
        if (shard.layout == entry.layout) world_.disk.written[step].shards[{shard.layout, shard.cell}] = shard.tensors;
      for (Rank rank : entry.objects_of) {
        const Object* object = p->ObjectOf(rank, step);
        if (!object)
          return world_.Break(Promise::kCheckpoint, "rank " + p->rank.ToString() + " is to save object " +
                                                        std::to_string(step) + " of rank " + rank.ToString() +
                                                        " and does not hold it");
        world_.disk.written[step].objects[rank] = *object;
      }
    }
    handlers_.Finish(p, {.phase = Phase::kDump});
  });
}

void Checkpoints::Rename(Process* p) {
  const uint64_t step = p->running->order.step.value();
  world_.ForTrainer(p, world_.Between(100, 3000), [this, p, step] {
    // A dump is compared, but not with damaged copies or those that were found to differ before, nor with what
    // launchers hold of ranks whose replicas live.
    const auto compared = [this](Process* q) {
      const bool adopts = world_.core().Adopts(q->rank);
      return q->alive && !q->damaged && !world_.seat().given_up.count({q->rank, q->incarnation}) &&
             (adopts ? q->adopted
                     : q->mark != core::StateMark::kNotYet &&
                           !world_.core().members()[static_cast<size_t>(q->rank.value())].trust.needs_repair());
    };
    for (Process* const q : world_.processes.newest())
      if (p->Word().locked && q && !compared(q)) rot_.Lose(q);
    state_checker_.CheckCheckpoint(*p, step, world_.disk.written[step]);
    world_.disk.visible[step] = world_.disk.written[step];
    handlers_.Finish(p, {.phase = Phase::kRename});
  });
}

void Checkpoints::Reload(Process* p) {
  const uint64_t step = p->running->order.step.value();
  p->received.clear();
  held_.Mark(p, core::StateMark::kWriting);
  for (Shard& shard : p->memory.state.shards) shard.tensors[0].value = Mix(shard.tensors[0].value, 2);
  world_.ForTrainer(p, world_.Between(1000, 30000), [this, p, step] {
    const auto found = world_.disk.visible.find(step);
    if (found == world_.disk.visible.end() || p->running->order.directory != world_.plan.policy.save_directory)
      return world_.Break(Promise::kCheckpoint,
                          "reload of step " + std::to_string(step) + " from '" + p->running->order.directory + "'");
    for (Shard& shard : p->memory.state.shards) shard.tensors = found->second.shards.at({shard.layout, shard.cell});
    // What a smaller crew saved has no objects of the others: they follow from the step alone.
    const auto object_of = [&](Rank rank) {
      const auto object = found->second.objects.find(rank);
      return object == found->second.objects.end() ? ObjectAfter(rank, step) : object->second;
    };
    p->memory.objects.Clear();
    p->memory.objects.Put(step, object_of(p->rank));
    for (Rank partner : p->Partners()) {
      p->memory.mirrored[partner].Clear();
      if (p->InCrew(partner)) p->memory.mirrored[partner].Put(step, object_of(partner));
    }
    p->damaged = p->flipped = p->memory.rotten = p->memory.tainted = false;
    p->memory.silent_bit = 0;
    handlers_.Finish(p, {.phase = Phase::kRepair});
  });
}

}  // namespace kintsugi::sim
