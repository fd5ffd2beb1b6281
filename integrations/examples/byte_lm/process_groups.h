// ProcessGroups: the Gloo groups of one generation, built by the rebuild_group handler and aborted by the stop handler.
//
// Threads: Abort from any; everything else is the trainer's. Ownership: one device for all groups of a generation.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "callbacks/handlers/handlers.h"
#include "integrations/examples/byte_lm/collectives.h"
#include "integrations/examples/byte_lm/rank_layout.h"
#include "integrations/examples/byte_lm/trainer.h"
#include "replica/stream/gloo_group.h"

namespace kintsugi::byte_lm {

class ProcessGroups {
 public:
  explicit ProcessGroups(const RankLayout& layout) : layout_(layout) {}

  // Connects all groups of call.generation through call.store; the old ones are gone before.
  Status Connect(HandlerContext& call);
  void Destroy();
  void Abort();

  Groups groups();
  Status Barrier();  // over all ranks: the gate
  // Waits until Abort and returns kCancelled, as a collective does that is aborted under its caller.
  Status AwaitAbort();

 private:
  class GlooCollectives;
  struct Connected;

  const RankLayout layout_;
  std::shared_ptr<Connected> connected_;
  std::mutex mutex_;   // guards what Abort uses
  std::condition_variable changed_;
  GlooDevice device_;     // of the newest generation
  bool aborted_ = false;  // the newest generation
};

}  // namespace kintsugi::byte_lm
