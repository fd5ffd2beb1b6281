// Checkpoints: parts are written by many, made visible by one.
#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

void Cluster::Save(Process* p) {
  world_.ForTrainer(p, world_.Between(1000, 20000), [this, p] {
    const PhaseOrder& order = p->running->order;
    const uint64_t step = order.step.value();
    for (const SaveEntry& entry : order.entries) {
      world_.disk.written[step].shards[{entry.layout, entry.holders.front()}] = p->state.Of(entry.layout);
      for (Rank rank : entry.objects_of) {
        const Object* object = p->ObjectOf(rank, step);
        if (!object)
          return world_.Break(Promise::kCheckpoint, "rank " + p->rank.ToString() + " is to save object " +
                                                        std::to_string(step) + " of rank " + rank.ToString() +
                                                        " and does not hold it");
        world_.disk.written[step].objects[rank] = *object;
      }
    }
    Finish(p, {.phase = Phase::kDump});
  });
}

void Cluster::Rename(Process* p) {
  const uint64_t step = p->running->order.step.value();
  world_.ForTrainer(p, world_.Between(100, 3000), [this, p, step] {
    // A dying gasp is compared, but not with what launchers hold of ranks whose replicas live.
    const auto compared = [this](Process* q) {
      return q->alive && !world_.seat().given_up.count({q->rank, q->incarnation}) &&
             (q->adopted || q->mark != core::StateMark::kNotYet);
    };
    for (Process* const q : world_.processes.newest())
      if (p->Word().locked && q && !compared(q)) LoseRot(q);
    state_checker_.CheckCheckpoint(step, world_.disk.written[step]);
    world_.disk.visible[step] = world_.disk.written[step];
    Finish(p, {.phase = Phase::kRename});
  });
}

}  // namespace kintsugi::sim
