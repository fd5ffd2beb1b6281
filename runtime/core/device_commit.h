// What a rank offers while its device is behind its host. Pure.
//
// On a device the commit of an update is the end marker and the event behind the update's kernels. Between the two the
// state is not that of step k yet, but nothing that the update needs is missing any more: the rank can finish it alone,
// which is what `updating(k)` says. So such a rank counts as one that is within its update, its trainer waits for the
// device before it parks, and what does not come to an end there is torn.
#pragma once

#include "runtime/core/gate_word.h"

namespace kintsugi::core {

// `pending`: an update was committed whose device was not seen to be done.
constexpr GateWord WithDevice(GateWord word, bool pending) {
  if (pending && word.state == GateState::kCommitted) word.state = GateState::kUpdating;
  return word;
}

}  // namespace kintsugi::core
