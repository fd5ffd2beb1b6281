#include "runtime/agent/gate.h"

namespace kintsugi {

using core::GateState;
using core::GateWord;

bool Gate::Tear() {
  uint64_t found = word().load();
  for (;;) {
    const GateWord now = GateWord::Unpack(found);
    if (now.state != GateState::kUpdating) return false;
    const uint64_t torn = Pack(GateState::kTorn, now.step.value()) | (found & kLockBit);
    if (word().compare_exchange_weak(found, torn)) return true;
  }
}

bool Gate::StillAt(Step step) const {
  const GateWord now = Word();
  return !now.locked && ((now.state == GateState::kCommitted && now.step == step) ||
                         (now.state == GateState::kAtGate && now.step == step.Next()));
}

Result<bool> Gate::IsSettled() const {
  const DeviceFence* const fence = fence_.load(std::memory_order_acquire);
  return fence ? fence->IsDone() : true;
}

void Gate::MoveTo(GateState state, Step step) {
  uint64_t found = word().load();
  while (!word().compare_exchange_weak(found, Pack(state, step.value()) | (found & kLockBit))) {
  }
}

}  // namespace kintsugi
