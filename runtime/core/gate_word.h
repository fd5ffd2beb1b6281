// The gate word: where a rank stands in its optimizer update, as one 64-bit value {locked, state, step}.
//
// The trainer moves it by compare-and-swap, the agent locks it with one fetch-or (docs/protocol.md); this file is the
// value's arithmetic only. before(k) is committed(k - 1): nothing of update k has happened yet.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/base/ids.h"

namespace kintsugi::core {

enum class GateState : uint8_t {
  kCommitted = 0,  // update `step` is complete
  kAtGate = 1,     // holds all inputs of update `step`, waits for every other rank
  kUpdating = 2,   // passed the gate: can finish update `step` alone
  kTorn = 3,       // update `step` began and did not end: the state is no step's
};

std::string_view GateStateName(GateState state);

struct GateWord {
  static constexpr uint64_t kLockBit = 1ull << 63;
  static constexpr uint64_t kStepMask = (1ull << 60) - 1;

  bool locked = false;
  GateState state = GateState::kCommitted;
  Step step;

  static constexpr uint64_t Pack(GateState state, uint64_t step) {
    return (static_cast<uint64_t>(state) << 60) | (step & kStepMask);
  }
  static GateWord Unpack(uint64_t word) {
    return {(word & kLockBit) != 0, static_cast<GateState>((word >> 60) & 7), Step(word & kStepMask)};
  }
  uint64_t Packed() const { return Pack(state, step.value()) | (locked ? kLockBit : 0); }
};

}  // namespace kintsugi::core
