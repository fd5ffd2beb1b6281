#include "callbacks/state/receive_ledger.h"

namespace kintsugi {

void ReceiveLedger::Begin(Step step, uint64_t manifest_digest, uint64_t blocks) {
  if (begun_ && step_ == step && digest_ == manifest_digest && arrived_.size() == blocks) return;
  begun_ = true;
  step_ = step;
  digest_ = manifest_digest;
  count_ = 0;
  arrived_.assign(blocks, 0);
}

void ReceiveLedger::Add(uint64_t block) {
  if (arrived_[block]) return;
  arrived_[block] = 1;
  ++count_;
}

}  // namespace kintsugi
