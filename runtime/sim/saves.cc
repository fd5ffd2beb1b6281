// Checkpoints: parts are written by many, made visible by one.
#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

void Cluster::Save(ProcessPtr p) {
  Trainer(p, Between(1000, 20000), [this, p] {
    const PhaseOrder& order = p->running->order;
    const uint64_t step = order.step.value();
    for (const SaveEntry& entry : order.entries) {
      written_[step].shards[{entry.layout, entry.holders.front()}] = p->state.Of(entry.layout);
      for (Rank rank : entry.objects_of) {
        const Object* object = ObjectOf(p, rank, step);
        if (!object)
          return Break(Promise::kCheckpoint, "rank " + p->rank.ToString() + " is to save object " +
                                                 std::to_string(step) + " of rank " + rank.ToString() +
                                                 " and does not hold it");
        written_[step].objects[rank] = *object;
      }
    }
    Finish(p, {.phase = Phase::kDump});
  });
}

void Cluster::Rename(ProcessPtr p) {
  const uint64_t step = p->running->order.step.value();
  Trainer(p, Between(100, 3000), [this, p, step] {
    // A dying gasp is compared, but not with what launchers hold of ranks whose replicas live.
    const auto compared = [this](ProcessPtr q) {
      return q->alive && !given_up_.count({q->rank, q->incarnation}) &&
             (q->adopted || q->mark != core::StateMark::kNotYet);
    };
    for (const ProcessPtr q : processes_)
      if (Word(p).locked && q && !compared(q)) LoseRot(q);
    CheckCheckpoint(step, written_[step]);
    visible_[step] = written_[step];
    Finish(p, {.phase = Phase::kRename});
  });
}

}  // namespace kintsugi::sim
