// NextFate: what becomes of what a rank is to hold once its state is cut anew, before a task is begun. In the agent and in the
// simulator.
//
//   the order says that its registration counts | kept: it is what is registered from here on
//   another generation has begun                | dropped: what was registered before is as it was
//   ROLLBACK: all agree on it                   | used, beside what was registered before
//
// Threads: none; pure.
#pragma once

#include "runtime/core/messages.h"

namespace kintsugi::core {

enum class NextFate : uint8_t { kWaits, kUsed, kKept, kDropped };

// `cut_in`: the generation in which it was said.
inline NextFate SettleNext(Generation cut_in, Generation generation, const PhaseOrder& order) {
  if (order.registered_in == cut_in) return NextFate::kKept;
  if (generation != cut_in) return NextFate::kDropped;
  return order.phase == Phase::kRollback ? NextFate::kUsed : NextFate::kWaits;
}

}  // namespace kintsugi::core
