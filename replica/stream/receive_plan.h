// ReceivePlan: which blocks of one ReceiveState call are missing, in work with which source, or there.
//
// Threads: any; one mutex.
// Errors: a block that arrived damaged twice fails the whole plan.
// Invariants: a block is in work with at most one source at a time.
// Internal to replica/stream.
#pragma once

#include <cstdint>
#include <vector>

#include "callbacks/state/receive_ledger.h"
#include "replica/stream/block_table.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"

namespace kintsugi {

class ReceivePlan {
 public:
  ReceivePlan(const BlockTable& table, ReceiveLedger& ledger, size_t sources, uint64_t request_blocks);

  // The next blocks for `source`, now in work. Waits while other sources have blocks that may come back; empty when this
  // source has nothing more to do.
  std::vector<BlockRange> Take(size_t source);
  // Blocks of a range are there.
  void Arrived(const BlockRange& range);
  // A block is there but damaged: it goes back to be asked for once more, or fails the plan with `why`.
  void Damaged(size_t source, uint64_t block, const std::string& why);
  // The source is gone: what it had in work goes back.
  void Drop(const std::vector<BlockRange>& in_work);

  Status failure() const;
  bool complete() const;
  uint64_t blocks_damaged() const;

 private:
  enum class State : uint8_t { kMissing, kInWork, kThere };
  bool MayTake(size_t source, uint64_t block) const KINTSUGI_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  ReceiveLedger& ledger_ KINTSUGI_GUARDED_BY(mutex_);
  const uint64_t request_blocks_;
  size_t live_sources_ KINTSUGI_GUARDED_BY(mutex_);
  std::vector<State> states_ KINTSUGI_GUARDED_BY(mutex_);
  std::vector<int16_t> damaged_by_ KINTSUGI_GUARDED_BY(mutex_);  // source that sent it damaged, or -1
  uint64_t missing_ KINTSUGI_GUARDED_BY(mutex_) = 0;
  uint64_t in_work_ KINTSUGI_GUARDED_BY(mutex_) = 0;
  uint64_t damaged_ KINTSUGI_GUARDED_BY(mutex_) = 0;
  Status failure_ KINTSUGI_GUARDED_BY(mutex_);
};

}  // namespace kintsugi
