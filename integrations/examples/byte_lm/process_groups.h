// ProcessGroups: the trainer's groups of one generation, built by the rebuild_group handler, aborted by the stop
// handler and ended by the clean handler. Over Gloo for host memory (gloo_process_groups.h), over NCCL for a device's
// (device/nccl_process_groups.h).
//
// Threads: Abort from any; everything else is the trainer's.
#pragma once

#include <condition_variable>
#include <mutex>

#include "callbacks/handlers/handlers.h"
#include "integrations/examples/byte_lm/trainer.h"

namespace kintsugi::byte_lm {

class ProcessGroups {
 public:
  virtual ~ProcessGroups() = default;

  // Connects all groups of call.generation through call.store; the old ones are gone before.
  virtual Status Connect(HandlerContext& call) = 0;
  // Ok when nothing can write late any more.
  virtual Status Destroy(TimePoint deadline) = 0;
  virtual void Abort();

  // Which groups the next Connect makes.
  virtual void MoveTo(const RankLayout& layout) = 0;
  virtual Groups groups() = 0;
  virtual Status Barrier() = 0;  // over all ranks: the gate
  // Waits until Abort and returns kCancelled, as a collective does that is aborted under its caller.
  Status AwaitAbort();

 protected:
  // A new generation takes work.
  void Arm();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;  // guarded by mutex_: the newest generation
};

}  // namespace kintsugi::byte_lm
