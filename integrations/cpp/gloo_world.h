// GlooWorld: one Gloo group over all ranks, for trainers whose only collectives are over all of them. It registers the
// handlers stop, clean and rebuild_group, and so is torn down and connected anew in every incident.
//
// A trainer with several groups (tensor, data, pipeline parallel) registers handlers of its own over GlooGroup; one
// GlooDevice then serves all groups of a generation (the example trainer byte_lm does so).
//
// Threads: the trainer's; the stop handler aborts from the agent's thread.
// Ownership: outlives the agent's Run.
// Errors: the group's own; Connect ends with the handler's deadline.
#pragma once

#include <atomic>
#include <memory>

#include "replica/stream/gloo_group.h"
#include "runtime/agent.h"

namespace kintsugi {

class KINTSUGI_EXPORT GlooWorld {
 public:
  explicit GlooWorld(RankAddress address = {}) : address_(std::move(address)) {}

  Status RegisterWith(Agent& agent);
  // REQUIRES: inside the loop or the rollback handler, where the group of the current generation is connected.
  GlooGroup* operator->() const { return group_.get(); }

 private:
  static Status Stop(HandlerContext& call, void* self);
  static Status Clean(HandlerContext& call, void* self);
  static Status Rebuild(HandlerContext& call, void* self);

  const RankAddress address_;
  std::unique_ptr<GlooGroup> group_;   // of one generation; the trainer's thread's
  std::atomic<GlooDevice> device_;     // what an incident aborts: the group comes and goes, at any moment
};

}  // namespace kintsugi
